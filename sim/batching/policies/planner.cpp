#include "sim/batching/policies/planner.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/batch_cost.h"
#include "sim/batching/policies/batch_forming.h"

namespace stepsim {
namespace {

/// Cuts samples that fall in length into batches.
class StepCutter {
 public:
  StepCutter(const PolicyInput& input, BatchCost cost, std::int64_t max_tokens)
      : input_(input), cost_(std::move(cost)), max_tokens_(max_tokens) {}

  /// How many of the samples `parts` batches can hold together, at least one each.
  [[nodiscard]] std::size_t holds(std::span<const std::int64_t> samples, std::size_t parts) const {
    std::size_t taken = 0;
    for (std::size_t part = 0; part < parts && taken < samples.size(); ++part) {
      const std::size_t count = most(samples.subspan(taken), std::numeric_limits<double>::max());
      if (count == 0) {
        throw InputError("no cost is known for a batch of one sample of {} tokens",
                         length(samples[taken]));
      }
      taken += count;
    }
    return taken;
  }

  /// How many batches hold all samples at whatever cost.
  [[nodiscard]] std::size_t needs(std::span<const std::int64_t> samples) const {
    std::size_t parts = 0;
    for (std::size_t taken = 0; taken < samples.size(); ++parts) {
      taken += holds(samples.subspan(taken), 1);
    }
    return parts;
  }

  /// [part] consecutive samples with the least highest cost (to a millionth), at least one each.
  /// `parts` must hold them all, and not be more than there are samples.
  [[nodiscard]] Batches cut(std::span<const std::int64_t> samples, std::size_t parts) const {
    double low = 0;
    double high = cost(samples.size(), length(samples.front()));
    if (!(high < std::numeric_limits<double>::infinity())) {
      high = 1;
      while (!fits(samples, parts, high)) {
        high *= 2;
      }
    }
    constexpr double kClose = 1e-6;
    while (high - low > kClose * high) {
      const double middle = (low + high) / 2;
      (fits(samples, parts, middle) ? high : low) = middle;
    }
    Batches result;
    for (std::size_t taken = 0; taken < samples.size();) {
      const std::size_t count = most(samples.subspan(taken), high);
      const auto part = samples.subspan(taken, count);
      result.emplace_back(part.begin(), part.end());
      taken += count;
    }
    while (result.size() < parts) {
      halve_largest(result);
    }
    return result;
  }

 private:
  [[nodiscard]] std::int64_t length(std::int64_t sample) const {
    return input_.lengths[static_cast<std::size_t>(sample)];
  }

  [[nodiscard]] double cost(std::size_t count, std::int64_t longest) const {
    return cost_(static_cast<std::int64_t>(count), longest);
  }

  /// The most leading samples within the cost and the budget; 0 when the first alone is too much.
  [[nodiscard]] std::size_t most(std::span<const std::int64_t> samples, double limit) const {
    const std::int64_t longest = length(samples.front());
    const auto within = [&](std::size_t count) {
      const auto tokens = static_cast<std::int64_t>(count) * longest;
      return cost(count, longest) <= limit && (max_tokens_ == 0 || tokens <= max_tokens_);
    };
    std::size_t low = 0;
    std::size_t high = samples.size();
    while (low < high) {
      const std::size_t middle = (low + high + 1) / 2;
      if (within(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  /// Whether so many parts of at most this cost hold all samples.
  [[nodiscard]] bool fits(std::span<const std::int64_t> samples,
                          std::size_t parts,
                          double limit) const {
    std::size_t taken = 0;
    for (std::size_t part = 0; part < parts && taken < samples.size(); ++part) {
      const std::size_t count = most(samples.subspan(taken), limit);
      if (count == 0) {
        return false;
      }
      taken += count;
    }
    return taken == samples.size();
  }

  static void halve_largest(Batches& parts) {
    const auto largest = std::ranges::max_element(parts, {}, std::ranges::size);
    const auto middle = largest->begin() + static_cast<std::ptrdiff_t>(largest->size() / 2);
    SampleIds second(middle, largest->end());
    largest->erase(middle, largest->end());
    parts.insert(largest + 1, std::move(second));
  }

  const PolicyInput& input_;
  BatchCost cost_;
  std::int64_t max_tokens_;
};

void check_lengths(const PolicyInput& input, std::int64_t max_tokens) {
  const std::int64_t longest = *std::ranges::max_element(input.lengths);
  if (max_tokens > 0 && longest > max_tokens) {
    throw InputError(
        "max_tokens: a sample of {} tokens does not fit into {}; cut the "
        "lengths with data.lengths.cap",
        longest,
        max_tokens);
  }
}

/// The costs of batches up to a few times the usual size.
BatchCost batch_cost(const PolicyParameters& parameters, const PolicyInput& input) {
  if (!input.step_cost) {
    return {};
  }
  constexpr std::int64_t kLargest = 16;
  return {[&input](const BatchShape& shape) { return static_cast<double>(input.step_cost(shape)); },
          kLargest * parameters.integer("batch_size"),
          *std::ranges::max_element(input.lengths)};
}

using Steps = std::vector<Batches>;  ///< [step][rank]

/// Cuts the samples of a window, which fall in length, into steps of `per_step` neighbours, or of
/// as many as max_tokens lets the ranks hold. Where there are too few, `head` (one sample a rank)
/// is repeated.
Steps steps_of_equal_samples(SampleIds samples,
                             const SampleIds& head,
                             std::size_t per_step,
                             const StepCutter& cutter,
                             const PolicyInput& input) {
  Steps steps;
  for (std::size_t taken = 0; taken < samples.size();) {
    SampleIds step(
        samples.begin() + static_cast<std::ptrdiff_t>(taken),
        samples.begin() + static_cast<std::ptrdiff_t>(std::min(taken + per_step, samples.size())));
    step.resize(cutter.holds(step, head.size()));
    taken += step.size();
    for (std::size_t i = 0; step.size() < head.size(); ++i) {
      step.push_back(head[i]);
    }
    sort_descending(step, input.lengths);
    steps.push_back(cutter.cut(step, head.size()));
  }
  return steps;
}

/// Cuts the samples of a window into as many steps, whose batches all cost as equally much as they
/// can.
Steps steps_of_equal_time(SampleIds samples,
                          const SampleIds& head,
                          std::size_t per_step,
                          const StepCutter& cutter,
                          const PolicyInput& input) {
  const std::size_t ranks = head.size();
  const std::size_t steps_wanted = (samples.size() + per_step / 2) / per_step;
  const std::size_t steps_needed = (cutter.needs(samples) + ranks - 1) / ranks;
  const std::size_t count = std::max(steps_wanted, steps_needed);
  for (std::size_t i = 0; samples.size() < count * ranks; ++i) {
    samples.push_back(head[i]);
  }
  sort_descending(samples, input.lengths);
  Batches batches = cutter.cut(samples, count * ranks);
  Steps steps;
  for (std::size_t first = 0; first < batches.size(); first += ranks) {
    const auto begin = batches.begin() + static_cast<std::ptrdiff_t>(first);
    steps.emplace_back(std::make_move_iterator(begin),
                       std::make_move_iterator(begin + static_cast<std::ptrdiff_t>(ranks)));
  }
  return steps;
}

}  // namespace

EpochBatches planner_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t max_tokens = parameters.maybe_integer("max_tokens").value_or(0);
  check_lengths(input, max_tokens);
  const auto ranks = static_cast<std::size_t>(input.ranks);
  const auto per_step = static_cast<std::size_t>(parameters.integer("batch_size")) * ranks;
  const std::size_t window = per_step * static_cast<std::size_t>(parameters.integer("window"));
  const StepCutter cutter(input, batch_cost(parameters, input), max_tokens);
  const auto form =
      parameters.text("steps") == "equal_time" ? steps_of_equal_time : steps_of_equal_samples;
  SampleIds order = sample_order(input);
  PythonRandom random(input.sampler.seed + static_cast<std::uint64_t>(input.epoch));
  EpochBatches epoch(ranks);
  const SampleIds head(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(ranks));
  for (std::size_t first = 0; first < order.size(); first += window) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first);
    SampleIds samples(begin,
                      begin + static_cast<std::ptrdiff_t>(std::min(window, order.size() - first)));
    if (input.sampler.drop_last) {
      samples.resize(samples.size() / per_step * per_step);
    }
    if (samples.empty()) {
      break;
    }
    sort_descending(samples, input.lengths);
    Steps steps = form(samples, head, per_step, cutter, input);
    random.shuffle(std::span(steps));
    for (Batches& step : steps) {
      random.shuffle(std::span(step));
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        epoch[rank].push_back(std::move(step[rank]));
      }
    }
  }
  return epoch;
}

StepCostUse planner_step_cost_use(const PolicyParameters& given) {
  if (!given.has("cost")) {
    return StepCostUse::IfKnown;
  }
  return given.text("cost") == "step_time" ? StepCostUse::Always : StepCostUse::Never;
}

}  // namespace stepsim
