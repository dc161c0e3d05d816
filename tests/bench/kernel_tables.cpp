#include "tests/bench/kernel_tables.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/io/csv_table.h"

namespace stepsim::bench {
namespace {

constexpr std::int64_t kMax = std::int64_t{1} << 40U;
constexpr double kMillisecond = 1e-3;

double seconds(const CsvTable& table, std::size_t row, std::string_view name) {
  const CsvTable::Column column = table.column(name);
  const double value = to_seconds(table.duration(row, column, kMillisecond));
  if (value <= 0) {
    table.fail(row, column, "expected a time above 0");
  }
  return value;
}

std::int64_t integer(const CsvTable& table, std::size_t row, std::string_view name) {
  return table.integer(row, table.column(name), 0, kMax);
}

std::int64_t size(const CsvTable& table, std::size_t row, std::string_view name) {
  return table.integer(row, table.column(name), 1, kMax);
}

std::string text(const CsvTable& table, std::size_t row, std::string_view name) {
  return std::string(table.text(row, table.column(name)));
}

Op mlp_op(std::int64_t n, std::int64_t k) {
  Op op;
  op.op_class = k > 0 ? OpClass::Gemm : OpClass::Elementwise;
  op.n = n;
  op.k = k;
  op.dtype = Dtype::F16;
  return op;
}

}  // namespace

std::optional<std::string> find_table(const std::string& folder, const std::string& ending) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (path.size() >= ending.size() && path.substr(path.size() - ending.size()) == ending) {
      found.push_back(path);
    }
  }
  if (error) {
    throw InputError(fmt::format("{}: {}", folder, error.message()));
  }
  if (found.size() > 1) {
    std::sort(found.begin(), found.end());
    throw InputError(fmt::format("{}: {} and {} are both tables of this kind; one card a folder",
                                 folder,
                                 found[0],
                                 found[1]));
  }
  return found.empty() ? std::nullopt : std::optional(found.front());
}

std::vector<MlpSeries> read_mlp(const std::string& path) {
  const CsvTable table(path);
  std::vector<MlpSeries> all;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const std::string model = text(table, row, "model");
    const std::string name = text(table, row, "op");
    const int sharding = static_cast<int>(integer(table, row, "tp"));
    if (all.empty() || all.back().model != model || all.back().sharding != sharding ||
        all.back().name != name) {
      all.push_back(
          {model, sharding, name, {mlp_op(size(table, row, "n"), integer(table, row, "k")), {}}});
    }
    const std::int64_t tokens = size(table, row, "tokens");
    const auto length = static_cast<double>(tokens);
    all.back().series.points.push_back(
        {{1, tokens, tokens, length * length}, seconds(table, row, "median_ms")});
  }
  return all;
}

std::vector<PrefillRow> read_prefill(const std::string& path) {
  const CsvTable table(path);
  std::vector<PrefillRow> rows;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    rows.push_back({static_cast<double>(size(table, row, "chunk")),
                    static_cast<double>(integer(table, row, "kv_cache")),
                    seconds(table, row, "median_ms")});
  }
  return rows;
}

std::vector<AllReduceRow> read_all_reduce(const std::string& path) {
  const CsvTable table(path);
  std::vector<AllReduceRow> rows;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    rows.push_back({static_cast<int>(size(table, row, "ranks")),
                    size(table, row, "bytes"),
                    seconds(table, row, "median_ms")});
  }
  return rows;
}

std::vector<LayerRow> read_layers(const std::string& path) {
  const CsvTable table(path);
  std::vector<LayerRow> rows;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const std::string kind = text(table, row, "kind");
    if (kind != "linear" && kind != "bmm") {
      continue;
    }
    const auto number = [&](std::string_view name) {
      return static_cast<double>(size(table, row, name));
    };
    rows.push_back({fmt::format("{}/{}/{}",
                                text(table, row, "model"),
                                text(table, row, "sequence"),
                                text(table, row, "batch")),
                    kind,
                    number("b"),
                    number("m"),
                    number("n"),
                    number("k"),
                    seconds(table, row, "fwd_ms"),
                    seconds(table, row, "bwd_ms")});
  }
  return rows;
}

std::vector<Bar> read_bars(const std::string& folder) {
  std::vector<Bar> bars;
  const std::string path = folder + "/bars.csv";
  if (!std::filesystem::exists(path)) {
    return bars;
  }
  const CsvTable table(path);
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const std::string_view mape = table.text(row, table.column("mape_percent"));
    double value = 0;
    const auto [end, error] = std::from_chars(mape.data(), mape.data() + mape.size(), value);
    if (error != std::errc() || end != mape.data() + mape.size()) {
      table.fail(row, table.column("mape_percent"), "expected a number");
    }
    bars.push_back({text(table, row, "file"),
                    text(table, row, "group"),
                    text(table, row, "split"),
                    text(table, row, "form"),
                    value});
  }
  return bars;
}

}  // namespace stepsim::bench
