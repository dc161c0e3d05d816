#include "costmodel/records/rank_clocks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

/// When the last all-reduce of a step ended, by the rank's own clock.
double last_end_ms(const StepRecord& row) {
  double end = 0;
  for (const BucketRecord& bucket : row.buckets) {
    end = std::max(end, bucket.end_ms);
  }
  return row.start_ms +
         (end > 0 ? end : row.data_ms + row.forward_ms + row.backward_ms + row.wait_ms);
}

double magnitude(double difference) {
  return std::abs(difference);
}

}  // namespace

double align_rank_clocks(RunRecord& record) {
  if (record.cores > 0) {
    return 0;  // Of one host, which has one clock.
  }
  std::map<std::pair<int, int>, double> common;  // Rank 0's end of a repeat's step.
  for (const StepRecord& row : record.steps) {
    if (row.rank == 0) {
      common[{row.repeat, row.step}] = last_end_ms(row);
    }
  }
  std::map<int, std::vector<double>> ahead;  // [rank] By how much its ends are later, by step.
  for (const StepRecord& row : record.steps) {
    const auto end = common.find({row.repeat, row.step});
    if (row.rank != 0 && end != common.end()) {
      ahead[row.rank].push_back(last_end_ms(row) - end->second);
    }
  }
  const double step_ms = quantile(mapped(record.steps, &StepRecord::step_ms), 0.5);
  double largest = 0;
  for (const auto& [rank, differences] : ahead) {
    const double usual = quantile(differences, 0.5);
    const double least = std::ranges::min(mapped(differences, magnitude));
    if (least <= step_ms) {
      continue;
    }
    largest = std::max(largest, std::abs(usual));
    for (StepRecord& row : record.steps) {
      const auto end = common.find({row.repeat, row.step});
      if (row.rank == rank) {
        row.start_ms -= end != common.end() ? last_end_ms(row) - end->second : usual;
      }
    }
  }
  constexpr double kMilliseconds = 1e3;
  return largest / kMilliseconds;
}

}  // namespace stepsim
