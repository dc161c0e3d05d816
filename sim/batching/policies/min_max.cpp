#include "sim/batching/policies/min_max.h"

#include <algorithm>
#include <cmath>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"

namespace stepsim {
namespace {

PrefixCosts prefix_costs(std::span<const std::int64_t> lengths, const MinMaxBatching& options) {
  switch (options.cost) {
    case MinMaxBatching::Cost::Tokens:
      return padded_token_costs(lengths);
    case MinMaxBatching::Cost::SquaredTokens:
      return squared_token_costs(lengths);
    case MinMaxBatching::Cost::StepTime:
      return shape_costs(lengths, options.step_cost);
    case MinMaxBatching::Cost::QuadraticTokens:
      break;
  }
  return shape_costs(lengths, [&options](const BatchShape& shape) {
    const auto longest = static_cast<double>(shape.max_length);
    const double tokens = longest + longest * longest / options.quadratic_tokens;
    return std::llround(static_cast<double>(shape.samples) * tokens);
  });
}

/// Each rank's samples, taken from the front.
class Queues {
 public:
  explicit Queues(std::vector<SampleIds>& orders) : orders_(orders), used_(orders.size()) {}

  [[nodiscard]] std::int64_t left(std::size_t rank) const {
    return static_cast<std::int64_t>(orders_[rank].size() - used_[rank]);
  }

  /// Takes as many of up to `count` samples as max_tokens allows.
  [[nodiscard]] PrefixCosts costs(std::size_t rank,
                                  std::int64_t count,
                                  std::span<const std::int64_t> lengths,
                                  const MinMaxBatching& options) const {
    SampleIds own;
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      own.push_back(lengths[static_cast<std::size_t>(
          orders_[rank][used_[rank] + static_cast<std::size_t>(i)])]);
      longest = std::max(longest, own.back());
      if (options.max_tokens > 0 && std::ssize(own) * longest > options.max_tokens) {
        own.pop_back();
        break;
      }
    }
    return prefix_costs(own, options);
  }

  [[nodiscard]] SampleIds take(std::size_t rank, std::int64_t count) {
    const auto begin = orders_[rank].begin() + static_cast<std::ptrdiff_t>(used_[rank]);
    used_[rank] += static_cast<std::size_t>(count);
    return {begin, begin + count};
  }

  /// Removes what was taken from the orders.
  void finish() {
    for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
      (void)orders_[rank].erase(
          orders_[rank].begin(),
          orders_[rank].begin() + static_cast<std::ptrdiff_t>(std::exchange(used_[rank], 0)));
    }
  }

 private:
  std::vector<SampleIds>& orders_;
  std::vector<std::size_t> used_;
};

std::int64_t most_of_one_rank(const MinMaxBatching& options) {
  return std::min(options.buffer, options.b_max.value_or(options.buffer));
}

/// One step that takes `samples` of all ranks, or what they hold, and leaves `kept` on each.
void add_step(Queues& queues,
              std::int64_t samples,
              std::int64_t kept,
              std::span<const std::int64_t> lengths,
              const MinMaxBatching& options,
              EpochBatches& result) {
  std::vector<PrefixCosts> costs;
  std::int64_t held = 0;
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    const auto most = std::min(most_of_one_rank(options), queues.left(rank) - kept);
    costs.push_back(queues.costs(rank, most, lengths, options));
    held += std::ssize(costs.back());
  }
  const Allocation allocation = solve_min_max(costs, std::min(samples, held), options.tie_break);
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    result[rank].push_back(queues.take(rank, allocation.batch_sizes[rank]));
  }
}

/// What is left, in the order in which the ranks would come to it.
SampleIds pool(const std::vector<SampleIds>& orders) {
  SampleIds all;
  std::size_t most = 0;
  for (const SampleIds& order : orders) {
    most = std::max(most, order.size());
  }
  for (std::size_t i = 0; i < most; ++i) {
    for (const SampleIds& order : orders) {
      if (i < order.size()) {
        all.push_back(order[i]);
      }
    }
  }
  return all;
}

/// The steps of the samples that no longer fill every buffer. Fewer than the ranks are filled up
/// with those of `head`, or left out where there are none.
void add_tail(SampleIds rest,
              const SampleIds& head,
              std::span<const std::int64_t> lengths,
              const MinMaxBatching& options,
              EpochBatches& result) {
  const std::size_t ranks = result.size();
  while (!rest.empty()) {
    for (std::size_t i = 0; rest.size() < ranks; ++i) {
      if (head.empty()) {
        return;
      }
      rest.push_back(head[i % head.size()]);
    }
    std::vector<SampleIds> shares(ranks);
    for (std::size_t i = 0; i < rest.size(); ++i) {
      shares[i % ranks].push_back(rest[i]);
    }
    const auto size = static_cast<std::int64_t>(rest.size());
    const std::int64_t later_steps = (size - 1) / options.global_batch;
    // Every rank keeps a sample for each later step.
    const auto kept = std::min(later_steps, size / static_cast<std::int64_t>(ranks) - 1);
    Queues queues(shares);
    add_step(queues, std::min(size, options.global_batch), kept, lengths, options, result);
    queues.finish();
    rest = pool(shares);
  }
}

/// A last step has a sample for every rank.
void fill_last_step(SampleIds& rest,
                    const SampleIds& head,
                    const MinMaxBatching& options,
                    std::size_t ranks) {
  const auto batch = static_cast<std::size_t>(options.global_batch);
  const std::size_t last = rest.size() % batch;
  for (std::size_t i = 0; last > 0 && last + i < ranks; ++i) {
    rest.push_back(head[i % head.size()]);
  }
}

MinMaxBatching read(const PolicyParameters& parameters, const PolicyInput& input) {
  MinMaxBatching options;
  options.global_batch = parameters.integer("global_batch");
  options.buffer = parameters.integer("buffer");
  options.b_max = parameters.maybe_integer("b_max");
  options.max_tokens = parameters.maybe_integer("max_tokens").value_or(0);
  options.tie_break = parse_tie_break(parameters.text("tie_break"));
  const std::string& cost = parameters.text("cost");
  if (cost == "tokens_sq") {
    options.cost = MinMaxBatching::Cost::SquaredTokens;
  } else if (cost == "quadratic") {
    options.cost = MinMaxBatching::Cost::QuadraticTokens;
    options.quadratic_tokens = parameters.number("quadratic_tokens");
  } else if (cost == "step_time") {
    options.cost = MinMaxBatching::Cost::StepTime;
    options.step_cost = input.step_cost;
    if (!options.step_cost) {
      throw InputError("min_max: cost = 'step_time' needs a scenario with its profile or [times]");
    }
  }
  return options;
}

void check_ranks(const MinMaxBatching& options, const PolicyInput& input) {
  if (static_cast<std::int64_t>(input.lengths.size()) < input.ranks) {
    throw InputError(
        "min_max: {} samples are fewer than the {} ranks", input.lengths.size(), input.ranks);
  }
  const std::int64_t most = most_of_one_rank(options) * input.ranks;
  if (options.global_batch < input.ranks || options.global_batch > most) {
    throw InputError(
        "min_max: global_batch = {} does not suit {} ranks that take 1 to {} samples each (buffer, "
        "b_max)",
        options.global_batch,
        input.ranks,
        most_of_one_rank(options));
  }
  const std::int64_t longest = *std::ranges::max_element(input.lengths);
  if (options.max_tokens > 0 && longest > options.max_tokens) {
    throw InputError(
        "max_tokens: a sample of {} tokens does not fit into {}; cut the "
        "lengths with data.lengths.cap",
        longest,
        options.max_tokens);
  }
}

}  // namespace

EpochBatches min_max_steps(std::vector<std::vector<std::int64_t>>& orders,
                           std::span<const std::int64_t> lengths,
                           const MinMaxBatching& options) {
  EpochBatches result(orders.size());
  Queues queues(orders);
  const auto full = [&] {
    for (std::size_t rank = 0; rank < orders.size(); ++rank) {
      if (queues.left(rank) < options.buffer) {
        return false;
      }
    }
    return true;
  };
  while (full()) {
    add_step(queues, options.global_batch, 0, lengths, options, result);
  }
  queues.finish();
  return result;
}

EpochBatches min_max_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const MinMaxBatching options = read(parameters, input);
  check_ranks(options, input);
  std::vector<SampleIds> orders =
      mapped(rank_shares(input), [](auto& share) { return std::move(share.samples); });
  SampleIds head = pool(orders);
  EpochBatches result = min_max_steps(orders, input.lengths, options);
  SampleIds rest = pool(orders);
  if (input.sampler.drop_last) {
    rest.resize(rest.size() - rest.size() % static_cast<std::size_t>(options.global_batch));
    head.clear();
  } else if (options.max_tokens == 0) {  // Else nobody knows yet which step is the last.
    fill_last_step(rest, head, options, orders.size());
  }
  add_tail(std::move(rest), head, input.lengths, options, result);
  return result;
}

void check_min_max(const PolicyParameters& parameters) {
  const bool quadratic = parameters.text("cost") == "quadratic";
  if (quadratic != parameters.has("quadratic_tokens")) {
    throw InputError(quadratic ? "cost = 'quadratic' needs quadratic_tokens"
                               : "quadratic_tokens applies to cost = 'quadratic' only");
  }
}

StepCostUse min_max_step_cost_use(const PolicyParameters& given) {
  return given.has("cost") && given.text("cost") == "step_time" ? StepCostUse::Always
                                                                : StepCostUse::Never;
}

}  // namespace stepsim
