// Step times of vTrain that were composed, not measured: arithmetic only.
#include <map>
#include <tuple>

#include <fmt/core.h>

#include "costmodel/network/collective_cost.h"
#include "tests/published/predicted.h"
#include "tests/published/validation.h"

namespace stepsim::published {

namespace {

/// Sums of what 4 and 8 GPUs take longer than 2, in milliseconds.
struct Growth {
  double four = 0;
  double eight = 0;
  int runs = 0;
};

/// By hidden size and layers.
std::map<std::pair<int, int>, Growth> read_growth(const std::string& path) {
  constexpr std::int64_t kMax = 1 << 20;
  const CsvTable table(path);
  const auto at = [&](std::size_t row, const char* column) {
    return static_cast<int>(table.integer(row, table.column(column), 1, kMax));
  };
  // By hidden, layers, micro-batch and their number: milliseconds by GPUs.
  std::map<std::tuple<int, int, int, int>, std::map<int, double>> runs;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    runs[{at(row, "hidden"), at(row, "layers"), at(row, "micro_batch"), at(row, "micro_batches")}]
        [at(row, "data_parallel")] = number(table, row, table.column("iteration_ms"));
  }
  std::map<std::pair<int, int>, Growth> result;
  for (const auto& [key, times] : runs) {
    Growth& growth = result[{std::get<0>(key), std::get<1>(key)}];
    growth.four += times.at(4) - times.at(2);
    growth.eight += times.at(8) - times.at(2);
    ++growth.runs;
  }
  return result;
}

}  // namespace

Validation vtrain(const std::string& data) {
  Validation result;
  result.title = "vTrain, data parallel on 2, 4 and 8 A100: what 8 GPUs add to 2, from what 4 add";
  result.source = "VIA-Research/vTrain@f8dda84, data/ground_truth_single.csv, half of the rows";
  result.unit = "ms";
  result.variants = {"ring volume"};
  result.decimals = 3;
  result.proves =
      "The volume of a ring, 2 (n-1)/n, links the all-reduces of hidden 1024; with hidden 2048 "
      "more GPUs are faster, which no all-reduce is.";
  result.cannot =
      "Anything about a machine: these step times are linear in the number of micro-batches to 15 "
      "digits, so they were composed from single times and a table of all-reduces.";
  const double two = bus_factor(CollectiveKind::AllReduce, 2);
  const double ratio = (bus_factor(CollectiveKind::AllReduce, 8) - two) /
                       (bus_factor(CollectiveKind::AllReduce, 4) - two);
  for (const auto& [key, growth] : read_growth(data + "/kernels/vtrain_a100_dp.csv")) {
    const auto [hidden, layers] = key;
    result.figures.push_back({fmt::format("hidden {}, {} layers", hidden, layers),
                              growth.eight / growth.runs,
                              {growth.four / growth.runs * ratio}});
  }
  return result;
}

}  // namespace stepsim::published
