#include "sim/batching/policies/planner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "costmodel/input_error.h"
#include "sim/batching/batch_cost.h"
#include "sim/batching/policies/policies.h"

namespace stepsim {
namespace {

using Samples = std::vector<std::int64_t>;

/// Deals steps out over the ranks.
class StepSplitter {
 public:
  StepSplitter(const PolicyInput& input, BatchCost cost, std::int64_t max_tokens)
      : input_(input), cost_(std::move(cost)), max_tokens_(max_tokens) {}

  /// How many of the descending samples the ranks can hold together, at least one each.
  [[nodiscard]] std::size_t holds(std::span<const std::int64_t> samples) const {
    std::size_t taken = 0;
    for (int rank = 0; rank < input_.ranks && taken < samples.size(); ++rank) {
      const std::size_t count = most(samples.subspan(taken), std::numeric_limits<double>::max());
      if (count == 0) {
        throw InputError(fmt::format("no cost is known for a batch of one sample of {} tokens",
                                     length(samples[taken])));
      }
      taken += count;
    }
    return taken;
  }

  /// [rank] consecutive parts of the descending samples with the least highest cost.
  [[nodiscard]] Batches split(std::span<const std::int64_t> samples) const {
    double low = 0;
    double high = cost(samples.size(), length(samples.front()));
    if (!(high < std::numeric_limits<double>::infinity())) {
      high = 1;
      while (!fits(samples, high)) {
        high *= 2;
      }
    }
    constexpr int kHalvings = 50;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (fits(samples, middle) ? high : low) = middle;
    }
    Batches parts;
    for (std::size_t taken = 0; taken < samples.size();) {
      const std::size_t count = most(samples.subspan(taken), high);
      const auto part = samples.subspan(taken, count);
      parts.emplace_back(part.begin(), part.end());
      taken += count;
    }
    while (parts.size() < static_cast<std::size_t>(input_.ranks)) {
      halve_largest(parts);
    }
    return parts;
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
  [[nodiscard]] bool fits(std::span<const std::int64_t> samples, double limit) const {
    std::size_t taken = 0;
    for (int rank = 0; rank < input_.ranks && taken < samples.size(); ++rank) {
      const std::size_t count = most(samples.subspan(taken), limit);
      if (count == 0) {
        return false;
      }
      taken += count;
    }
    return taken == samples.size();
  }

  static void halve_largest(Batches& parts) {
    const auto largest =
        std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
          return a.size() < b.size();
        });
    const auto middle = largest->begin() + static_cast<std::ptrdiff_t>(largest->size() / 2);
    Samples second(middle, largest->end());
    largest->erase(middle, largest->end());
    parts.insert(largest + 1, std::move(second));
  }

  const PolicyInput& input_;
  BatchCost cost_;
  std::int64_t max_tokens_;
};

void check_lengths(const PolicyInput& input, std::int64_t max_tokens) {
  const std::int64_t longest = *std::max_element(input.lengths.begin(), input.lengths.end());
  if (max_tokens > 0 && longest > max_tokens) {
    throw InputError(
        fmt::format("max_tokens: a sample of {} tokens does not fit into {}; cut the "
                    "lengths with data.lengths.cap",
                    longest,
                    max_tokens));
  }
}

/// Of batches up to a few times the usual size.
BatchCost batch_cost(const PolicyParameters& parameters, const PolicyInput& input) {
  if (!input.step_cost) {
    return {};
  }
  constexpr std::int64_t kLargest = 8;
  return {[&input](const BatchShape& shape) { return static_cast<double>(input.step_cost(shape)); },
          kLargest * parameters.integer("batch_size"),
          *std::max_element(input.lengths.begin(), input.lengths.end())};
}

}  // namespace

EpochBatches planner_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t max_tokens = parameters.maybe_integer("max_tokens").value_or(0);
  check_lengths(input, max_tokens);
  const auto ranks = static_cast<std::size_t>(input.ranks);
  const auto per_step = static_cast<std::size_t>(parameters.integer("batch_size")) * ranks;
  const std::size_t window = per_step * static_cast<std::size_t>(parameters.integer("window"));
  const StepSplitter splitter(input, batch_cost(parameters, input), max_tokens);
  Samples order = sample_order(input);
  PythonRandom random(input.sampler.seed + static_cast<std::uint64_t>(input.epoch));
  EpochBatches epoch(ranks);
  const Samples head(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(ranks));
  for (std::size_t first = 0; first < order.size(); first += window) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first);
    Samples samples(begin,
                    begin + static_cast<std::ptrdiff_t>(std::min(window, order.size() - first)));
    if (input.sampler.drop_last) {
      samples.resize(samples.size() / per_step * per_step);
    }
    sort_descending(samples, input.lengths);
    std::vector<Batches> steps;
    for (std::size_t taken = 0; taken < samples.size();) {
      Samples step(samples.begin() + static_cast<std::ptrdiff_t>(taken),
                   samples.begin() +
                       static_cast<std::ptrdiff_t>(std::min(taken + per_step, samples.size())));
      step.resize(splitter.holds(step));
      taken += step.size();
      for (std::size_t i = 0; step.size() < ranks; ++i) {
        step.push_back(head[i]);
      }
      sort_descending(step, input.lengths);
      steps.push_back(splitter.split(step));
    }
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

}  // namespace stepsim
