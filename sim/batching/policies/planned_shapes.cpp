#include "sim/batching/policies/planned_shapes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/length_ladder.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/batch_cost.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/policy.h"

namespace stepsim {
namespace {

constexpr std::int64_t kDefaultShapes = 16;
/// Batches of short samples hold up to so many times the mean.
constexpr std::int64_t kMostTimesMean = 64;

/// What batches of a length hold and cost.
class ShapePrices {
 public:
  ShapePrices(const PolicyParameters& parameters, const PolicyInput& input)
      : most_(kMostTimesMean * parameters.integer("batch_size")),
        max_tokens_(parameters.maybe_integer("max_tokens").value_or(0)) {
    if (input.step_cost) {
      cost_ = {[&input](const BatchShape& shape) {
                 return static_cast<double>(input.step_cost(shape)) * 1e-9;
               },
               most_,
               *std::ranges::max_element(input.lengths)};
    }
  }

  /// The samples of this length that a batch of at most so many seconds holds, 1 or more.
  [[nodiscard]] std::int64_t samples(std::int64_t length, double seconds) const {
    std::int64_t low = 1;
    std::int64_t high =
        max_tokens_ > 0 ? std::max(low, std::min(most_, max_tokens_ / length)) : most_;
    while (low < high) {
      const std::int64_t middle = (low + high + 1) / 2;
      if (cost_(middle, length) <= seconds) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  [[nodiscard]] double cost(std::int64_t samples, std::int64_t length) const {
    return cost_(samples, length);
  }

 private:
  BatchCost cost_;
  std::int64_t most_;
  std::int64_t max_tokens_;
};

/// Lengths, ascending, and how many samples are padded to each.
using LengthCounts = std::map<std::int64_t, std::int64_t>;

/// The batches, whole and parts, that hold all samples if each takes at most so many seconds.
double batches_of(const LengthCounts& counts, const ShapePrices& prices, double seconds) {
  double sum = 0;
  for (const auto& [length, count] : counts) {
    sum += static_cast<double>(count) / static_cast<double>(prices.samples(length, seconds));
  }
  return sum;
}

/// The least seconds of a batch with which at most so many batches hold all samples.
double batch_seconds(const LengthCounts& counts, const ShapePrices& prices, double batches) {
  double low = 0;
  double high = 1e-9;
  constexpr double kLongest = 1e18;  // Padded tokens stand for seconds where no cost is known.
  while (high < kLongest && batches_of(counts, prices, high) > batches) {
    low = high;
    high *= 2;
  }
  constexpr double kClose = 1e-6;
  while (high - low > kClose * high) {
    const double middle = (low + high) / 2;
    (batches_of(counts, prices, middle) > batches ? low : high) = middle;
  }
  return high;
}

std::int64_t rung_of(const std::vector<std::int64_t>& rungs, std::int64_t length) {
  return padded_to_rung(std::max<std::int64_t>(length, 1), rungs);
}

/// The best rungs for batches of so many seconds, where a shape costs `weight` times what it does.
std::vector<std::int64_t> choose_rungs(const LengthCounts& counts,
                                       const ShapePrices& prices,
                                       double seconds,
                                       double weight,
                                       const PolicyParameters& parameters,
                                       const PolicyInput& input) {
  const std::vector<LadderBatch> batches = mapped(counts, [](const auto& entry) {
    return LadderBatch{1, entry.first, entry.second};
  });
  LadderProblem problem;
  problem.batches = batches;
  problem.price = [&](std::int64_t /*samples*/, std::int64_t length) {
    const std::int64_t held = prices.samples(length, seconds);
    return prices.cost(held, length) / static_cast<double>(held * input.ranks);
  };
  problem.shape_seconds = weight * input.shape_seconds;
  problem.key = ShapeKey::Length;
  problem.most_rungs = parameters.maybe_integer("shapes");
  if (!problem.most_rungs && !(input.shape_seconds > 0)) {
    problem.most_rungs = kDefaultShapes;
  }
  return optimal_length_ladder(problem).rungs;
}

/// Raises InputError: see planned_shapes_epoch().
LengthCounts counted_lengths(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t multiple = parameters.integer("length_multiple");
  const std::int64_t max_tokens = parameters.maybe_integer("max_tokens").value_or(0);
  LengthCounts counts;
  for (const std::int64_t length : input.lengths) {
    ++counts[padded_to_multiple(std::max<std::int64_t>(length, 1), multiple)];
  }
  const std::int64_t longest = counts.rbegin()->first;
  if (max_tokens > 0 && longest > max_tokens) {
    throw InputError(
        "max_tokens: a sample of {} tokens, padded to a multiple of {}, does not fit into {}; cut "
        "the lengths with data.lengths.cap",
        *std::ranges::max_element(input.lengths),
        multiple,
        max_tokens);
  }
  return counts;
}

/// What a data set's batches hold and cost if they are padded to these rungs.
struct RungCosts {
  RungCosts(const std::vector<std::int64_t>& rungs,
            const LengthCounts& counts,
            const ShapePrices& prices,
            double batches) {
    LengthCounts padded;
    for (const auto& [length, count] : counts) {
      padded[rung_of(rungs, length)] += count;
    }
    const double seconds = batch_seconds(padded, prices, batches);
    for (const auto& [rung, count] : padded) {
      const std::int64_t held = samples[rung] = prices.samples(rung, seconds);
      batch_seconds_of_epoch +=
          static_cast<double>(count) / static_cast<double>(held) * prices.cost(held, rung);
    }
  }

  std::map<std::int64_t, std::int64_t> samples;  ///< [rung] of a batch.
  double batch_seconds_of_epoch = 0;             ///< The sum over all batches of all ranks.
};

/// The rungs of a data set, and the samples of their batches.
class ShapeList {
 public:
  ShapeList(const PolicyParameters& parameters, const PolicyInput& input)
      : lengths_(input.lengths) {
    const ShapePrices prices(parameters, input);
    const LengthCounts counts = counted_lengths(parameters, input);
    const double batches = static_cast<double>(input.lengths.size()) /
                           static_cast<double>(parameters.integer("batch_size"));
    // The best rungs depend on how long batches may take, and that on the rungs: a shape is given
    // more and more weight against that time, and the rungs with which an epoch takes least stay.
    constexpr double kHeaviest = 0x1p40;
    const double seconds = batch_seconds(counts, prices, batches);
    double least = std::numeric_limits<double>::infinity();
    std::size_t rungs = 0;
    for (double weight = 0.25; weight < kHeaviest && rungs != 1; weight *= 2) {
      const RungCosts tried(choose_rungs(counts, prices, seconds, weight, parameters, input),
                            counts,
                            prices,
                            batches);
      rungs = tried.samples.size();
      const double sum = tried.batch_seconds_of_epoch / input.ranks +
                         static_cast<double>(rungs) * input.shape_seconds;
      if (sum < least) {
        least = sum;
        samples_ = tried.samples;
      }
      if (!(input.shape_seconds > 0)) {
        break;
      }
    }
    for (const auto& [rung, samples] : samples_) {
      rungs_.push_back(rung);
    }
  }

  [[nodiscard]] const std::vector<std::int64_t>& rungs() const { return rungs_; }

  [[nodiscard]] std::int64_t rung(std::int64_t sample) const {
    return rung_of(rungs_, length_of(lengths_, sample));
  }
  /// How many samples a batch of this rung holds.
  [[nodiscard]] std::size_t samples(std::int64_t rung) const { return at(samples_.at(rung)); }

 private:
  std::span<const std::int64_t> lengths_;
  std::vector<std::int64_t> rungs_;
  std::map<std::int64_t, std::int64_t> samples_;  ///< [rung]
};

/// Appends a step: `samples` in equal parts.
void add_step_of(std::span<const std::int64_t> samples, EpochBatches& epoch) {
  const std::size_t part = samples.size() / epoch.size();
  for (std::size_t rank = 0; rank < epoch.size(); ++rank) {
    const auto batch = samples.subspan(rank * part, part);
    epoch[rank].emplace_back(batch.begin(), batch.end());
  }
}

/// Appends samples to a step until it has `size`: the first of the epoch of the rungs from `least`
/// to `most`, which is not empty.
void fill_up(std::int64_t least,
             std::int64_t most,
             std::size_t size,
             const SampleIds& order,
             const ShapeList& shapes,
             SampleIds& step) {
  while (step.size() < size) {
    for (const std::int64_t sample : order) {
      const std::int64_t rung = shapes.rung(sample);
      if (step.size() < size && rung >= least && rung <= most) {
        step.push_back(sample);
      }
    }
  }
}

/// A step of the longest of what is left, in an order in which parts of it are alike: every rank
/// gets a sample of the longest rung, so that all pad to it. `rest` falls in length; what the step
/// takes is taken off. Nothing: drop_last leaves the step out.
std::optional<SampleIds> take_step(std::span<const std::int64_t>& rest,
                                   const SampleIds& order,
                                   const ShapeList& shapes,
                                   const PolicyInput& input) {
  const auto ranks = at(input.ranks);
  const std::int64_t rung = shapes.rung(rest.front());
  const std::size_t whole = shapes.samples(rung) * ranks;
  SampleIds step;
  const auto take = [&](std::size_t most, std::int64_t least_rung) {
    while (!rest.empty() && step.size() < most && shapes.rung(rest.front()) >= least_rung) {
      step.push_back(rest.front());
      rest = rest.subspan(1);
    }
  };
  take(whole, rung);
  fill_up(rung, rung, std::min(ranks, whole), order, shapes, step);
  take(whole, 0);
  if (step.size() < whole) {
    if (input.sampler.drop_last) {
      return {};
    }
    fill_up(0, rung, whole, order, shapes, step);
  }
  SampleIds dealt;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = rank; i < whole; i += ranks) {
      dealt.push_back(step[i]);
    }
  }
  return dealt;
}

/// Steps of what is left in the rungs at the end of an epoch. `rest` falls in length.
void add_rest(std::span<const std::int64_t> rest,
              const SampleIds& order,
              const ShapeList& shapes,
              const PolicyInput& input,
              EpochBatches& epoch) {
  std::vector<SampleIds> steps;
  while (!rest.empty()) {
    if (auto step = take_step(rest, order, shapes, input)) {
      steps.push_back(std::move(*step));
    }
  }
  PythonRandom random(input.sampler.seed + static_cast<std::uint64_t>(input.epoch));
  random.shuffle(std::span(steps));
  for (const SampleIds& step : steps) {
    add_step_of(step, epoch);
  }
}

}  // namespace

EpochPlan planned_shapes_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const ShapeList shapes(parameters, input);
  const SampleIds order = sample_order(input);
  EpochPlan plan;
  plan.pad_to_lengths = shapes.rungs();
  plan.batches.resize(at(input.ranks));
  std::map<std::int64_t, SampleIds> waiting;
  for (const std::int64_t sample : order) {
    const std::int64_t rung = shapes.rung(sample);
    SampleIds& samples = waiting[rung];
    samples.push_back(sample);
    if (samples.size() == shapes.samples(rung) * plan.batches.size()) {
      add_step_of(samples, plan.batches);
      samples.clear();
    }
  }
  SampleIds rest;
  for (const auto& [rung, samples] : waiting) {
    rest.insert(rest.end(), samples.begin(), samples.end());
  }
  sort_descending(rest, input.lengths);
  add_rest(rest, order, shapes, input, plan.batches);
  return plan;
}

}  // namespace stepsim
