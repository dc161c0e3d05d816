#include "calibrate/import/recorded/recorded_exposure.h"

#include <algorithm>
#include <cmath>

#include "calibrate/import/recorded/recorded_buckets.h"
#include "calibrate/import/recorded/recorded_reduces.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

RecordedExposure exposure_of(std::span<const RankExposure> ranks) {
  const auto end = [](const RankExposure& rank) { return rank.start + rank.wall; };
  const auto wait = [](const RankExposure& rank) { return rank.wall - rank.compute; };
  const RankExposure& slowest = *std::ranges::max_element(ranks, {}, &RankExposure::compute);
  const double first = std::ranges::min(ranks, {}, &RankExposure::start).start;
  const double last = std::ranges::max(ranks, {}, &RankExposure::start).start;
  const bool one_clock = last - first < slowest.wall;
  RecordedExposure exposure;
  exposure.backward_seconds = slowest.backward;
  exposure.batch = slowest.batch;
  exposure.exposed_seconds = one_clock
                                 ? end(std::ranges::max(ranks, {}, end)) - last - slowest.compute
                                 : wait(std::ranges::min(ranks, {}, wait));
  return exposure;
}

std::vector<ReadyBucket> ready_buckets(const Plan& plan,
                                       const BatchShape& batch,
                                       double operations_per_byte) {
  const std::vector<Parameter> all = parameters(plan.model);
  const auto size = static_cast<std::int64_t>(element_size(plan.model.parameter_dtype));
  if (plan.buckets.empty()) {
    return {{size * sum_of(all, &Parameter::elements), 1.0}};
  }
  const std::vector<double> shares =
      launch_shares(plan, step_ops(plan.model).backward, batch, operations_per_byte);
  std::vector<ReadyBucket> buckets;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const std::int64_t elements = sum_of(plan.buckets[b], [&](const int parameter) {
      return all[static_cast<std::size_t>(parameter)].elements();
    });
    buckets.push_back({size * elements, shares[b]});
  }
  return buckets;
}

double exposed_seconds(std::span<const RecordedExposure> steps,
                       std::span<const std::vector<ReadyBucket>> buckets,
                       const CollectiveCost& table,
                       double factor) {
  double sum = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    double end = 0;
    for (const ReadyBucket& bucket : buckets[i]) {
      end = std::max(end, bucket.share * steps[i].backward_seconds) +
            factor * seconds_alone(table, bucket.bytes);
    }
    sum += std::max(0.0, end - steps[i].backward_seconds);
  }
  return sum / static_cast<double>(steps.size());
}

std::optional<double> exposure_factor(std::span<const RecordedExposure> steps,
                                      std::span<const std::vector<ReadyBucket>> buckets,
                                      const CollectiveCost& table) {
  constexpr double kMost = 1e4;
  constexpr int kHalvings = 60;
  if (steps.empty()) {
    return std::nullopt;
  }
  const double recorded = trimmed_mean(mapped(steps, &RecordedExposure::exposed_seconds), kLeftOut);
  double low = std::log(1 / kMost);
  double high = std::log(kMost);
  if (exposed_seconds(steps, buckets, table, 1 / kMost) > recorded ||
      exposed_seconds(steps, buckets, table, kMost) < recorded) {
    return std::nullopt;
  }
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (exposed_seconds(steps, buckets, table, std::exp(middle)) < recorded ? low : high) = middle;
  }
  return std::exp(high);
}

CollectiveCost proportional_all_reduce(std::span<const ReadyBucket> buckets, int ranks) {
  const auto [smallest, largest] = std::ranges::minmax(buckets, {}, &ReadyBucket::bytes);
  const auto most = static_cast<double>(largest.bytes);
  CollectiveCost cost;
  cost.ranks = ranks;
  cost.knots = {{most, kMilli}};
  if (smallest.bytes < largest.bytes) {
    const auto least = static_cast<double>(smallest.bytes);
    cost.knots.insert(cost.knots.begin(), {least, kMilli * least / most});
  }
  cost.tail_seconds_per_byte = kMilli / most;
  return cost;
}

namespace {

/// The largest spread that is kept: beyond it the steps only tell that the time is not known.
constexpr double kMostSpread = 1;

/// The standard deviation of the factors of consecutive parts of the steps, over the whole one.
double factor_spread(std::span<const RecordedExposure> steps,
                     std::span<const std::vector<ReadyBucket>> buckets,
                     const CollectiveCost& table,
                     double factor) {
  constexpr std::size_t kParts = 8;
  double squares = 0;
  int used = 0;
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::size_t begin = steps.size() * part / kParts;
    const std::size_t count = steps.size() * (part + 1) / kParts - begin;
    if (const auto own =
            exposure_factor(steps.subspan(begin, count), buckets.subspan(begin, count), table)) {
      squares += (*own / factor - 1) * (*own / factor - 1);
      ++used;
    }
  }
  return used > 0 ? std::min(std::sqrt(squares / used), kMostSpread) : 0;
}

}  // namespace

void scale_to_exposure(std::span<const RecordedExposure> steps,
                       const Plan& plan,
                       double operations_per_byte,
                       std::vector<CollectiveCost>& collectives) {
  std::vector<std::vector<ReadyBucket>> buckets;
  for (const RecordedExposure& step : steps) {
    buckets.push_back(ready_buckets(plan, step.batch, operations_per_byte));
  }
  const auto known = std::ranges::find_if(collectives, [&](const CollectiveCost& cost) {
    return cost.kind == name_of(CollectiveKind::AllReduce) && cost.ranks == plan.ranks;
  });
  CollectiveCost table =
      known == collectives.end() ? proportional_all_reduce(buckets.front(), plan.ranks) : *known;
  const auto factor = exposure_factor(steps, buckets, table);
  if (known != collectives.end() && !factor) {
    return;
  }
  const double scale = factor.value_or(0);  // Nothing was exposed.
  for (auto& [bytes, seconds] : table.knots) {
    seconds *= scale;
  }
  if (table.tail_seconds_per_byte) {
    *table.tail_seconds_per_byte *= scale;
  }
  if (factor) {
    const double spread = factor_spread(steps, buckets, table, 1);
    table.errors.random = std::hypot(table.errors.random.value_or(0), spread);
  }
  if (known == collectives.end()) {
    collectives.push_back(std::move(table));
  } else {
    *known = std::move(table);
  }
}

}  // namespace stepsim
