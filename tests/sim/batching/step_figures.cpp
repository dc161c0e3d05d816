#include "tests/sim/batching/step_figures.h"

#include <algorithm>
#include <cmath>

#include "costmodel/model/batch_shape.h"
#include "sim/batching/policies/batch_forming.h"

namespace stepsim::test {
namespace {

BatchShape shape_of(const std::vector<std::int64_t>& batch, std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> own;
  for (const auto id : batch) {
    own.push_back(lengths[static_cast<std::size_t>(id)]);
  }
  return batch_shape(own);
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace

StepFigures step_figures(const EpochBatches& epoch,
                         std::span<const std::int64_t> lengths,
                         std::size_t steps) {
  StepFigures result;
  std::vector<double> totals;
  std::int64_t useful = 0;
  const auto ranks = static_cast<double>(epoch.size());
  const auto count = static_cast<double>(steps);
  for (std::size_t step = 0; step < steps; ++step) {
    std::int64_t sum = 0;
    std::int64_t largest = 0;
    double squares = 0;
    for (const auto& rank : epoch) {
      const BatchShape shape = shape_of(rank[step], lengths);
      sum += shape.padded_tokens();
      useful += shape.useful_tokens;
      largest = std::max(largest, shape.padded_tokens());
      squares += static_cast<double>(shape.padded_tokens() * shape.padded_tokens());
    }
    const double mean = static_cast<double>(sum) / ranks;
    result.total_padded += sum;
    result.mean_std_padded += std::sqrt(std::max(0., squares / ranks - mean * mean)) / count;
    result.mean_max_rank += static_cast<double>(largest) / count;
    totals.push_back(static_cast<double>(sum));
  }
  const auto total = static_cast<double>(result.total_padded);
  result.padded_per_step = total / count;
  result.p95_over_mean = percentile(totals, 0.95) / result.padded_per_step;
  result.padding_ratio = 1 - static_cast<double>(useful) / total;
  return result;
}

std::vector<std::vector<std::int64_t>> strided(const std::vector<std::int64_t>& order, int ranks) {
  std::vector<std::vector<std::int64_t>> shares(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < order.size(); ++i) {
    shares[i % shares.size()].push_back(order[i]);
  }
  return shares;
}

EpochBatches equal_counts(const std::vector<std::vector<std::int64_t>>& orders,
                          std::int64_t count) {
  EpochBatches result;
  for (const auto& order : orders) {
    result.push_back(chunk(order, count, true));
  }
  return result;
}

}  // namespace stepsim::test
