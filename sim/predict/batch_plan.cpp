#include "sim/predict/batch_plan.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/batching/loss_scale.h"
#include "sim/batching/step_batches.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/memory_need.h"
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

/// Makes the micro-batches of one optimizer step from `batches` [micro-batch][rank]. A rank that
/// has run out of inputs inside join() gets an empty batch.
void make_step(const Scenario& scenario,
               const BatchingPolicy& policy,
               const PolicyInput& data,
               const EpochPlan& first_epoch,
               int step,
               std::span<const RankBatches> batches,
               const TakeMicroBatch& take) {
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
      batch.padded_length = padding_of(scenario, policy, first_epoch, batch.shape().max_length);
      made[rank].push_back(std::move(batch));
    }
    const auto scales = loss_scales(policy.weighting(), shapes);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      made[rank].back().loss_scale = scales[rank] / static_cast<double>(batches.size());
    }
  }
  for (std::vector<MicroBatch>& of_rank : made) {
    std::ranges::for_each(of_rank, [&](MicroBatch& batch) { take(std::move(batch)); });
  }
}

/// The plan's header, without any batch.
Plan empty_plan(const Scenario& scenario,
                const BatchingPolicy& policy,
                const BucketLists& buckets) {
  Plan plan;
  plan.scenario = scenario.name;
  plan.policy = policy.name();
  plan.seed = scenario.seed;
  plan.ranks = scenario.ranks;
  plan.steps = scenario.steps;
  plan.warmup_steps = scenario.warmup_steps;
  plan.model = scenario.model;
  plan.model.attention = policy.attention();
  plan.optimizer = name_of(scenario.optimizer);
  plan.ddp = scenario.parallel->plan_header(parallel_job(scenario));
  plan.initial_buckets = indices(buckets.initial);
  plan.buckets = indices(buckets.rebuilt);
  return plan;
}

/// Raises InputError: a sample is longer than all lengths that batches are padded to.
void check_rungs(const BatchingPolicy& policy, const std::vector<std::int64_t>& lengths) {
  const std::vector<std::int64_t>& rungs = policy.pad_to_lengths();
  if (!rungs.empty() && !policy.cuts() && policy.row_length() == 0 && !lengths.empty()) {
    (void)padded_to_rung(*std::ranges::max_element(lengths), rungs);
  }
}

/// The lengths as they run: a varlen call cuts them, unless the policy does.
std::vector<std::int64_t> run_lengths(const Scenario& scenario,
                                      const BatchingPolicy& policy,
                                      std::vector<std::int64_t> lengths) {
  if (policy.cuts()) {
    return lengths;
  }
  if (policy.is_varlen()) {
    lengths = cut_lengths(lengths, policy.varlen());
  }
  for (const std::int64_t length : lengths) {
    check_length(scenario, length);
  }
  return lengths;
}

PolicyInput policy_input(const Scenario& scenario, const PlannedData& planned) {
  PolicyInput input;
  input.lengths = planned.lengths;
  input.targets = planned.targets;
  input.sampler = scenario.sampler;
  input.ranks = scenario.ranks;
  return input;
}

PolicyInput policy_input(const Scenario& scenario,
                         const PlannedData& planned,
                         const PlanningCost& cost) {
  PolicyInput input = policy_input(scenario, planned);
  input.step_cost = cost.batch;
  input.shape_seconds = cost.shape_seconds;
  return input;
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
  KnownLengths none;
  return data_lengths(scenario, policy, none);
}

std::vector<std::int64_t> data_lengths(const Scenario& scenario,
                                       const BatchingPolicy& policy,
                                       KnownLengths& known) {
  if (policy.played() != nullptr) {
    return policy.played()->lengths;
  }
  return known.of(policy.lengths().value_or(scenario.lengths), scenario.samples);
}

PlannedData plan_data(const Scenario& scenario,
                      const BatchingPolicy& policy,
                      const PlanningCost& cost,
                      KnownLengths& known) {
  check_memory(scenario, policy, {});
  if (const PlayedBatches* played = policy.played()) {
    return named(policy, [&] { return played_data(scenario, *played); });
  }
  PlannedData planned;
  const std::vector<std::int64_t> drawn = data_lengths(scenario, policy, known);
  check_memory(scenario, policy, {}, std::ssize(drawn));
  named(policy, [&] { planned.lengths = run_lengths(scenario, policy, drawn); });
  if (scenario.targets) {
    planned.targets = generate_targets(*scenario.targets, planned.lengths, scenario.samples == 0);
  }
  named(policy, [&] {
    const auto start = std::chrono::steady_clock::now();
    planned.first_epoch = plan_epoch(policy, policy_input(scenario, planned, cost));
    const auto end = std::chrono::steady_clock::now();
    planned.planning_seconds = std::chrono::duration<double>(end - start).count();
    if (policy.is_varlen()) {
      planned.varlen =
          fit_into_slots(planned.first_epoch, drawn, policy.varlen(), scenario.model.causal);
    }
  });
  return planned;
}

void plan_steps(const Scenario& scenario,
                const BatchingPolicy& policy,
                const PlanningCost& cost,
                KnownLengths& known,
                const PlannedData& data,
                const TakeMicroBatch& take) {
  check_memory(scenario, policy, {}, policy.played() == nullptr ? std::ssize(data.lengths) : 0);
  if (const PlayedBatches* played = policy.played()) {
    named(policy, [&] {
      play(scenario, *played, [&](MicroBatch batch) {
        check_length(scenario, batch.shape().max_length);
        take(std::move(batch));
      });
    });
    return;
  }
  const auto fit = [&](EpochPlan& epoch) {
    if (policy.is_varlen()) {
      const std::vector<std::int64_t> drawn = data_lengths(scenario, policy, known);
      (void)fit_into_slots(epoch, drawn, policy.varlen(), scenario.model.causal);
    }
  };
  named(policy, [&] {
    check_rungs(policy, data.lengths);
    const PolicyInput input = policy_input(scenario, data, cost);
    StepBatches batches(policy, input, data.first_epoch, fit);
    for (int step = 0; step < scenario.steps; ++step) {
      std::vector<RankBatches> of_step(at(scenario.ddp.accumulation_steps));
      std::ranges::generate(of_step, [&] { return batches.next(); });
      make_step(scenario, policy, input, data.first_epoch, step, of_step, take);
    }
  });
}

PlannedPolicy plan_policy(const Scenario& scenario,
                          const BatchingPolicy& policy,
                          const PlanningCost& cost) {
  check_memory(scenario, policy, {KeptRows::Samples});
  PlannedPolicy planned;
  std::vector<MicroBatch>& batches = planned.plan.micro_batches;
  batches.reserve(at(scenario.steps) * at(scenario.ranks) * at(scenario.ddp.accumulation_steps));
  KnownLengths none;
  static_cast<PlannedData&>(planned) = plan_data(scenario, policy, cost, none);
  plan_steps(scenario, policy, cost, none, planned, [&](MicroBatch batch) {
    batches.push_back(std::move(batch));
  });
  Plan header = empty_plan(scenario, policy, bucket_lists(scenario));
  header.micro_batches = std::move(batches);
  planned.plan = std::move(header);
  return planned;
}

BatchShape epoch_shape(const Scenario& scenario,
                       const BatchingPolicy& policy,
                       const PlannedData& planned,
                       std::span<const std::int64_t> batch) {
  const std::vector<std::int64_t> lengths = mapped(batch, [&](std::int64_t id) {
    return planned.first_epoch.piece_of(id, planned.lengths).length;
  });
  const std::vector<std::int64_t> sequences = sequences_of(policy, lengths);
  BatchShape shape = batch_shape(sequences.empty() ? lengths : sequences);
  shape.max_length = std::max(shape.max_length,
                              padding_of(scenario, policy, planned.first_epoch, shape.max_length));
  return shape;
}

TrainingEffects first_epoch_effects(const Scenario& scenario,
                                    const BatchingPolicy& policy,
                                    const PlannedData& planned) {
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
