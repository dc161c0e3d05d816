#include "sim/predict/batch_plan.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <span>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/batching/loss_scale.h"
#include "sim/batching/plan_steps.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/played_plan.h"

namespace stepsim {

namespace {

/// [rank] The samples, or parts of them, of one micro-batch.
using RankBatches = std::vector<std::vector<Piece>>;

std::vector<std::vector<int>> indices(const std::vector<Bucket>& buckets) {
  return mapped(buckets, &Bucket::parameters);
}

/// Fills in samples and lengths, and offsets where one of them is a part of a sample.
void fill(MicroBatch& batch, const std::vector<Piece>& pieces, const PolicyInput& data) {
  const std::size_t count = pieces.size();
  batch.samples.reserve(count);
  batch.lengths.reserve(count);
  bool whole = true;
  for (const Piece& piece : pieces) {
    const auto sample = static_cast<std::size_t>(piece.sample);
    batch.samples.push_back(piece.sample);
    batch.lengths.push_back(piece.length);
    whole = whole && piece.length == data.lengths[sample];
    if (!data.targets.empty()) {
      batch.targets.push_back(data.targets[sample]);
    }
  }
  if (!whole) {
    batch.offsets = mapped(pieces, &Piece::offset);
  }
}

/// The full rows that a batch's tokens fill, and a last one of what is left.
std::vector<std::int64_t> rows_of(const std::vector<std::int64_t>& lengths, std::int64_t row) {
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  std::vector<std::int64_t> rows(static_cast<std::size_t>(tokens / row), row);
  if (tokens % row > 0) {
    rows.push_back(tokens % row);
  }
  return rows;
}

/// MicroBatch::sequences of a batch whose samples have these lengths.
std::vector<std::int64_t> sequences_of(const BatchingPolicy& policy,
                                       const std::vector<std::int64_t>& lengths) {
  if (policy.row_length() > 0) {
    return rows_of(lengths, policy.row_length());
  }
  std::vector<std::int64_t> sequences;
  if (policy.is_varlen()) {
    const auto fitted = sequences_in_slots(lengths, policy.varlen()).value();
    for (const Sequence& sequence : fitted) {
      sequences.push_back(sequence.length);
    }
  }
  return sequences.size() < lengths.size() ? sequences : std::vector<std::int64_t>();
}

/// Raises InputError: the model does not take that many tokens.
void check_length(const Scenario& scenario, std::int64_t length) {
  if (scenario.model.max_length > 0 && length > scenario.model.max_length) {
    throw InputError("a sample is " + std::to_string(length) + " tokens long, but model '" +
                     scenario.model.name + "' takes at most " +
                     std::to_string(scenario.model.max_length) +
                     "; cut the lengths with data.lengths.cap");
  }
}

/// Returns MicroBatch::padded_length of a batch of this epoch with this longest sample, which is 0
/// where it is not padded.
std::int64_t padding_of(const Scenario& scenario,
                        const BatchingPolicy& policy,
                        const EpochPlan& epoch,
                        std::int64_t longest) {
  const std::int64_t padded = policy.is_varlen() ? longest : policy.padded_length(longest, epoch);
  check_length(scenario, padded);
  return padded > longest ? padded : 0;
}

/// Appends one optimizer step to the plan: `batches` [micro-batch][rank]. A rank that has run out
/// of inputs inside join() gets an empty batch.
void add_step(const Scenario& scenario,
              const BatchingPolicy& policy,
              const PolicyInput& data,
              std::span<const RankBatches> batches,
              PlannedPolicy& planned) {
  Plan& plan = planned.plan;
  const int step = static_cast<int>(plan.micro_batches.size()) /
                   (scenario.ranks * scenario.ddp.accumulation_steps);
  const auto joined = [&](std::size_t rank) {
    return !scenario.ddp.join_steps.empty() && step >= scenario.ddp.join_steps[rank];
  };
  const auto ranks = static_cast<std::size_t>(scenario.ranks);
  std::vector<std::vector<MicroBatch>> made(ranks);
  for (std::size_t m = 0; m < batches.size(); ++m) {
    std::vector<BatchShape> shapes;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      MicroBatch batch;
      batch.step = step;
      batch.rank = static_cast<int>(rank);
      batch.micro_batch = static_cast<int>(m);
      if (!joined(rank)) {
        fill(batch, batches[m][rank], data);
      }
      shapes.push_back(batch_shape(batch.lengths));
      batch.sequences = sequences_of(policy, batch.lengths);
      batch.padded_length =
          padding_of(scenario, policy, planned.first_epoch, batch.shape().max_length);
      made[rank].push_back(std::move(batch));
    }
    const auto scales = loss_scales(policy.weighting(), shapes);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      made[rank].back().loss_scale = scales[rank] / static_cast<double>(batches.size());
    }
  }
  for (std::vector<MicroBatch>& of_rank : made) {
    std::move(of_rank.begin(), of_rank.end(), std::back_inserter(plan.micro_batches));
  }
}

/// The plan's header, without any batch.
Plan empty_plan(const Scenario& scenario, const BatchingPolicy& policy, const DdpBuckets& buckets) {
  Plan plan;
  plan.scenario = scenario.name;
  plan.policy = policy.name();
  plan.seed = scenario.seed;
  plan.ranks = scenario.ranks;
  plan.steps = scenario.steps;
  plan.warmup_steps = scenario.warmup_steps;
  plan.model = scenario.model;
  plan.model.attention = policy.attention();
  plan.optimizer = scenario.optimizer;
  plan.initial_buckets = indices(buckets.initial);
  plan.buckets = indices(buckets.rebuilt);
  return plan;
}

/// Raises InputError: a sample is longer than all lengths that batches are padded to.
void check_rungs(const BatchingPolicy& policy, const std::vector<std::int64_t>& lengths) {
  const std::vector<std::int64_t>& rungs = policy.pad_to_lengths();
  if (!rungs.empty() && policy.row_length() == 0 && !lengths.empty()) {
    (void)padded_to_rung(*std::ranges::max_element(lengths), rungs);
  }
}

/// The lengths as they run: a varlen call cuts them, unless the policy does.
std::vector<std::int64_t> run_lengths(const Scenario& scenario,
                                      const BatchingPolicy& policy,
                                      const std::vector<std::int64_t>& lengths) {
  if (policy.cuts()) {
    return lengths;
  }
  std::vector<std::int64_t> cut =
      policy.is_varlen() ? cut_lengths(lengths, policy.varlen()) : lengths;
  for (const std::int64_t length : cut) {
    check_length(scenario, length);
  }
  check_rungs(policy, cut);
  return cut;
}

PolicyInput policy_input(const Scenario& scenario, const PlannedPolicy& planned) {
  PolicyInput input;
  input.lengths = planned.lengths;
  input.targets = planned.targets;
  input.sampler = scenario.sampler;
  input.ranks = scenario.ranks;
  return input;
}

/// Fills in the first epoch and the plan, from lengths and targets. `drawn`: the lengths before a
/// varlen call cuts them.
void add_batches(const Scenario& scenario,
                 const BatchingPolicy& policy,
                 const PlanningCost& cost,
                 const std::vector<std::int64_t>& drawn,
                 PlannedPolicy& planned) {
  PolicyInput input = policy_input(scenario, planned);
  input.step_cost = cost.batch;
  input.shape_seconds = cost.shape_seconds;
  bool first = true;
  const auto start = std::chrono::steady_clock::now();
  const auto fit = [&](EpochPlan& epoch) {
    const auto end = std::chrono::steady_clock::now();
    std::optional<VarlenUse> use;
    if (policy.is_varlen()) {
      use = fit_into_slots(epoch, drawn, policy.varlen(), scenario.model.causal);
    }
    if (std::exchange(first, false)) {
      planned.planning_seconds = std::chrono::duration<double>(end - start).count();
      planned.first_epoch = epoch;
      planned.varlen = use;
    }
  };
  const int micro_batches = scenario.ddp.accumulation_steps;
  auto batches = plan_steps(policy, input, scenario.steps * micro_batches, fit);
  planned.buckets = bucket_lists(scenario);
  planned.plan = empty_plan(scenario, policy, planned.buckets);
  planned.plan.micro_batches.reserve(batches.size() * static_cast<std::size_t>(scenario.ranks));
  for (auto step = batches.begin(); step != batches.end(); step += micro_batches) {
    add_step(scenario, policy, input, {step, step + micro_batches}, planned);
    for (auto done = step; done != step + micro_batches; ++done) {
      *done = {};  // Of very many ranks it takes as much memory as the plan.
    }
  }
}

/// Calls `form`; a message of the policy itself gets the policy's name.
template <typename Form>
auto named(const BatchingPolicy& policy, Form form) {
  try {
    return form();
  } catch (const InputError& error) {
    throw InputError("policy '" + printable(policy.name()) + "': " + error.what(), error.lookup());
  }
}

}  // namespace

std::vector<std::int64_t> data_lengths(const Scenario& scenario, const BatchingPolicy& policy) {
  if (policy.played() != nullptr) {
    return policy.played()->lengths;
  }
  return generate_lengths(policy.lengths().value_or(scenario.lengths), scenario.samples);
}

PlannedPolicy plan_policy(const Scenario& scenario,
                          const BatchingPolicy& policy,
                          const PlanningCost& cost) {
  PlannedPolicy planned;
  if (const PlayedBatches* played = policy.played()) {
    planned.buckets = bucket_lists(scenario);
    planned.plan = empty_plan(scenario, policy, planned.buckets);
    named(policy, [&] {
      play(scenario, *played, planned);
      for (const MicroBatch& batch : planned.plan.micro_batches) {
        check_length(scenario, batch.shape().max_length);
      }
    });
    return planned;
  }
  const std::vector<std::int64_t> drawn = data_lengths(scenario, policy);
  planned.lengths = named(policy, [&] { return run_lengths(scenario, policy, drawn); });
  if (scenario.targets) {
    planned.targets = generate_targets(*scenario.targets, planned.lengths, scenario.samples == 0);
  }
  named(policy, [&] { add_batches(scenario, policy, cost, drawn, planned); });
  return planned;
}

BatchShape epoch_shape(const Scenario& scenario,
                       const BatchingPolicy& policy,
                       const PlannedPolicy& planned,
                       std::span<const std::int64_t> batch) {
  MicroBatch one;
  one.lengths = mapped(planned.first_epoch.pieces_of(batch, planned.lengths), &Piece::length);
  one.sequences = sequences_of(policy, one.lengths);
  one.padded_length = padding_of(scenario, policy, planned.first_epoch, one.shape().max_length);
  return one.shape();
}

TrainingEffects first_epoch_effects(const Scenario& scenario,
                                    const BatchingPolicy& policy,
                                    const PlannedPolicy& planned) {
  if (const PlayedBatches* played = policy.played()) {
    return played_effects(*played, planned.first_epoch, policy_input(scenario, planned));
  }
  return named(policy, [&] {
    return training_effects(
        planned.first_epoch,
        policy_input(scenario, planned),
        [&](std::int64_t longest) { return policy.padded_length(longest, planned.first_epoch); },
        policy.token_budget());
  });
}

}  // namespace stepsim
