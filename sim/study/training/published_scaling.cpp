#include "sim/study/training/published_scaling.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "costmodel/io/csv_table.h"
#include "costmodel/records/shipped.h"

namespace stepsim {

namespace {

constexpr double kMostParameters = 1e15;
constexpr std::int64_t kMostGpus = 1 << 20;

/// How many times two figures differ, as a power of two.
double times(double one, double other) {
  return std::abs(std::log2(one / other));
}

double growth(int from, int to) {
  return static_cast<double>(to) / from;
}

double distance(const PublishedScaling& row, const GrownJob& job) {
  const bool same_gpu = job.device.find(row.gpu) != std::string::npos;
  return times(row.parameters, job.parameters) + times(row.gpus, job.ranks) +
         times(growth(row.from_gpus, row.gpus), growth(job.from_ranks, job.ranks)) +
         (same_gpu ? 0 : 1);
}

}  // namespace

std::vector<PublishedScaling> published_scaling() {
  const std::string path = shipped_path("scenarios/published/scaling.csv");
  std::vector<PublishedScaling> rows;
  if (!std::filesystem::exists(path)) {
    return rows;
  }
  const CsvTable table(path);
  const auto text = [&](std::size_t row, const char* column) {
    return std::string(table.text(row, table.column(column)));
  };
  for (std::size_t i = 0; i < table.rows(); ++i) {
    PublishedScaling row;
    row.job = text(i, "job");
    row.parameters = table.real(i, table.column("parameters"), 1, kMostParameters);
    row.gpu = text(i, "gpu");
    row.sharding = text(i, "sharding");
    row.from_gpus = static_cast<int>(table.integer(i, table.column("from_gpus"), 1, kMostGpus));
    row.gpus = static_cast<int>(table.integer(i, table.column("gpus"), 1, kMostGpus));
    row.efficiency = table.real(i, table.column("efficiency"), 0, 2);
    row.source = text(i, "source");
    row.date = text(i, "date");
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<PublishedScaling> nearest_published(const std::vector<PublishedScaling>& all,
                                                const GrownJob& job) {
  constexpr std::size_t kMost = 5;
  const double wanted = growth(job.from_ranks, job.ranks);
  std::vector<PublishedScaling> near;
  std::ranges::copy_if(all, std::back_inserter(near), [&](const PublishedScaling& row) {
    return times(growth(row.from_gpus, row.gpus), wanted) <= 1;
  });
  std::ranges::stable_sort(
      near, {}, [&](const PublishedScaling& row) { return distance(row, job); });
  std::vector<PublishedScaling> shown;
  for (PublishedScaling& row : near) {
    const bool is_new = std::ranges::none_of(shown, [&](const PublishedScaling& other) {
      return other.job == row.job && other.sharding == row.sharding && other.gpu == row.gpu;
    });
    if (is_new && shown.size() < kMost) {
      shown.push_back(std::move(row));
    }
  }
  return shown;
}

}  // namespace stepsim
