#include "calibrate/import/recorded/recorded_exposure.h"

#include <algorithm>
#include <cmath>
#include <optional>

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

namespace {

/// The largest spread that is kept: beyond it the steps only tell that the time is not known.
constexpr double kMostSpread = 1;

/// The buckets of a plan in the order of their launches. A plan without buckets has one, of all
/// gradients.
struct LaunchedBuckets {
  std::vector<std::int64_t> bytes;          ///< [bucket]
  std::vector<std::vector<double>> shares;  ///< [step][bucket] of the backward's compute, from its
                                            ///< start, when its gradients are there.
};

LaunchedBuckets launched_buckets(std::span<const RecordedExposure> steps,
                                 const Plan& plan,
                                 double operations_per_byte) {
  const std::vector<Parameter> all = parameters(plan.model);
  const auto size = static_cast<std::int64_t>(element_size(plan.model.parameter_dtype));
  LaunchedBuckets buckets;
  if (plan.buckets.empty()) {
    buckets.bytes = {size * sum_of(all, &Parameter::elements)};
    buckets.shares.assign(steps.size(), {1.0});
    return buckets;
  }
  buckets.bytes = mapped(plan.buckets, [&](const std::vector<int>& bucket) {
    return size * sum_of(bucket, [&](const int parameter) {
             return all[static_cast<std::size_t>(parameter)].elements();
           });
  });
  const std::vector<Op> backward = step_ops(plan.model).backward;
  buckets.shares = mapped(steps, [&](const RecordedExposure& step) {
    return launch_shares(plan, backward, step.batch, operations_per_byte);
  });
  return buckets;
}

/// Some steps, when their buckets are ready, and what these take alone. Views.
struct ExposedSteps {
  std::span<const RecordedExposure> steps;
  std::span<const std::vector<double>> shares;  ///< LaunchedBuckets::shares of these steps.
  std::span<const double> seconds;              ///< [bucket]

  /// The mean of what all-reduces leave exposed that take `factor` times what they take alone and
  /// follow one another, each as soon as its bucket is ready.
  [[nodiscard]] double exposed(double factor) const {
    double sum = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      double end = 0;
      for (std::size_t bucket = 0; bucket < seconds.size(); ++bucket) {
        end =
            std::max(end, shares[i][bucket] * steps[i].backward_seconds) + factor * seconds[bucket];
      }
      sum += std::max(0.0, end - steps[i].backward_seconds);
    }
    return sum / static_cast<double>(steps.size());
  }
};

/// The factor with which exposed() is the recorded mean; nothing where none between 1e-4 and 1e4
/// does it, as when the steps show no exposed communication.
std::optional<double> exposure_factor(const ExposedSteps& all) {
  constexpr double kMost = 1e4;
  constexpr int kHalvings = 60;
  if (all.steps.empty()) {
    return std::nullopt;
  }
  const double recorded =
      trimmed_mean(mapped(all.steps, &RecordedExposure::exposed_seconds), kLeftOut);
  double low = std::log(1 / kMost);
  double high = std::log(kMost);
  if (all.exposed(1 / kMost) > recorded || all.exposed(kMost) < recorded) {
    return std::nullopt;
  }
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (all.exposed(std::exp(middle)) < recorded ? low : high) = middle;
  }
  return std::exp(high);
}

/// A table in which an all-reduce of the largest bucket takes 1 ms and others take time in
/// proportion to their bytes: for exposure_factor() where no sweep of sizes is at hand.
CollectiveCost proportional_all_reduce(std::span<const std::int64_t> bytes, int ranks) {
  const auto [smallest, largest] = std::ranges::minmax(bytes);
  const auto most = static_cast<double>(largest);
  CollectiveCost cost;
  cost.ranks = ranks;
  cost.knots = {{most, kMilli}};
  if (smallest < largest) {
    const auto least = static_cast<double>(smallest);
    cost.knots.insert(cost.knots.begin(), {least, kMilli * least / most});
  }
  cost.tail_seconds_per_byte = kMilli / most;
  return cost;
}

/// The standard deviation of the factors of consecutive parts of the steps, over the whole one.
double factor_spread(const ExposedSteps& all, double factor) {
  constexpr std::size_t kParts = 8;
  const std::size_t steps = all.steps.size();
  double squares = 0;
  int used = 0;
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::size_t begin = steps * part / kParts;
    const std::size_t count = steps * (part + 1) / kParts - begin;
    const ExposedSteps own{
        all.steps.subspan(begin, count), all.shares.subspan(begin, count), all.seconds};
    if (const auto found = exposure_factor(own)) {
      squares += (*found / factor - 1) * (*found / factor - 1);
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
  const LaunchedBuckets buckets = launched_buckets(steps, plan, operations_per_byte);
  const auto known = std::ranges::find_if(collectives, [&](const CollectiveCost& cost) {
    return cost.kind == name_of(CollectiveKind::AllReduce) && cost.ranks == plan.ranks;
  });
  CollectiveCost table =
      known == collectives.end() ? proportional_all_reduce(buckets.bytes, plan.ranks) : *known;
  const auto alone = [&] {
    return mapped(buckets.bytes, [&](std::int64_t bytes) { return seconds_alone(table, bytes); });
  };
  std::vector<double> seconds = alone();
  const ExposedSteps exposed{steps, buckets.shares, seconds};
  const auto factor = exposure_factor(exposed);
  if (known != collectives.end() && !factor) {
    return;
  }
  const double scale = factor.value_or(0);  // Nothing was exposed.
  for (auto& [bytes, own] : table.knots) {
    own *= scale;
  }
  if (table.tail_seconds_per_byte) {
    *table.tail_seconds_per_byte *= scale;
  }
  if (factor) {
    seconds = alone();
    const double spread = factor_spread({steps, buckets.shares, seconds}, 1);
    table.errors.random = std::hypot(table.errors.random.value_or(0), spread);
  }
  if (known == collectives.end()) {
    collectives.push_back(std::move(table));
  } else {
    *known = std::move(table);
  }
}

}  // namespace stepsim
