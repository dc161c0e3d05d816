#include "sim/predict/batch_plan.h"

#include <chrono>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>

#include "costmodel/base/input_error.h"
#include "sim/predict/priced_run.h"
#include "sim/predict/step_cost.h"

namespace stepsim {

namespace {

/// [rank] samples, or parts of them, of one micro-batch.
using RankBatches = std::vector<std::vector<Piece>>;

std::vector<std::vector<int>> indices(const std::vector<Bucket>& buckets) {
  std::vector<std::vector<int>> lists;
  lists.reserve(buckets.size());
  for (const Bucket& bucket : buckets) {
    lists.push_back(bucket.parameters);
  }
  return lists;
}

/// Buckets that a hand-written loop makes once and for all, in reverse order of registration.
std::vector<Bucket> hand_written(const DdpOptions& ddp,
                                 const std::vector<BucketParameter>& parameters) {
  std::vector<int> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), 0);
  if (ddp.bucket_rule == BucketRule::Single) {
    return {{order, std::numeric_limits<std::int64_t>::max()}};
  }
  const std::int64_t cap = ddp.bucket_rule == BucketRule::PerParameter ? 0 : ddp.bucket_cap.value();
  return before_cap_buckets(parameters, order, cap);
}

/// Samples, lengths and, where a part of a sample is among them, offsets.
void fill(MicroBatch& batch, const std::vector<Piece>& pieces, const PolicyInput& data) {
  bool whole = true;
  for (const Piece& piece : pieces) {
    const auto sample = static_cast<std::size_t>(piece.sample);
    batch.samples.push_back(piece.sample);
    batch.lengths.push_back(piece.length);
    batch.offsets.push_back(piece.offset);
    whole = whole && piece.length == data.lengths[sample];
    if (!data.targets.empty()) {
      batch.targets.push_back(data.targets[sample]);
    }
  }
  if (whole) {
    batch.offsets.clear();
  }
}

/// Full rows of a batch's tokens, and what is left.
std::vector<std::int64_t> rows_of(const std::vector<std::int64_t>& lengths, std::int64_t row) {
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  std::vector<std::int64_t> rows(static_cast<std::size_t>(tokens / row), row);
  if (tokens % row > 0) {
    rows.push_back(tokens % row);
  }
  return rows;
}

/// MicroBatch::sequences of a batch of samples of these lengths.
std::vector<std::int64_t> sequences_of(const Scenario& scenario,
                                       const PolicySpec& policy,
                                       const std::vector<std::int64_t>& lengths) {
  if (policy.row_length > 0) {
    return rows_of(lengths, policy.row_length);
  }
  std::vector<std::int64_t> sequences;
  if (is_varlen(scenario)) {
    const auto fitted = sequences_in_slots(lengths, scenario.varlen).value();
    for (const Sequence& sequence : fitted) {
      sequences.push_back(sequence.length);
    }
  }
  return sequences.size() < lengths.size() ? sequences : std::vector<std::int64_t>();
}

/// Appends one optimizer step: `batches` [micro-batch][rank]. A rank that has run out of inputs
/// inside join() gets an empty batch.
void add_step(const Scenario& scenario,
              const PolicySpec& policy,
              const PolicyInput& data,
              std::span<const RankBatches> batches,
              Plan& plan) {
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
      batch.sequences = sequences_of(scenario, policy, batch.lengths);
      made[rank].push_back(std::move(batch));
    }
    const auto scales = loss_scales(policy.weighting, shapes);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      made[rank].back().loss_scale = scales[rank] / static_cast<double>(batches.size());
    }
  }
  for (std::vector<MicroBatch>& of_rank : made) {
    std::move(of_rank.begin(), of_rank.end(), std::back_inserter(plan.micro_batches));
  }
}

/// `form()`; a policy's own message gets the policy's name.
template <typename Form>
auto named(const PolicySpec& policy, Form form) {
  try {
    return form();
  } catch (const InputError& error) {
    throw InputError("policy '" + printable(policy.name) + "': " + error.what());
  }
}

/// Asked for, or the way of the planner wherever the scenario says what things cost.
bool plans_by_time(const Scenario& scenario, const PolicySpec& policy) {
  if (policy.parameters.has("cost")) {
    return policy.parameters.text("cost") == "step_time";
  }
  return policy.kind == "planner" && (scenario.times || !scenario.profile.empty());
}

/// Lengths of the data set as they run: a varlen call cuts them, unless the policy does.
std::vector<std::int64_t> run_lengths(const Scenario& scenario,
                                      const PolicySpec& policy,
                                      const std::vector<std::int64_t>& lengths) {
  return named(policy, [&] {
    return is_varlen(scenario) && !make_policy(policy).cuts()
               ? cut_lengths(lengths, scenario.varlen)
               : lengths;
  });
}

/// What a policy sees of the scenario. Only a policy that plans by time has the profile read.
PolicyInput policy_input(const Scenario& scenario,
                         const PolicySpec& policy,
                         const std::vector<std::int64_t>& lengths,
                         const std::vector<std::int64_t>& targets) {
  PolicyInput input;
  input.lengths = lengths;
  input.targets = targets;
  input.sampler = scenario.sampler;
  input.ranks = scenario.ranks;
  if (plans_by_time(scenario, policy)) {
    input.step_cost = step_cost(scenario, scenario_profile(scenario));
  }
  return input;
}

/// Second lengths of samples of these lengths; empty where the scenario has none.
std::vector<std::int64_t> data_targets(const Scenario& scenario,
                                       const std::vector<std::int64_t>& lengths) {
  if (!scenario.targets) {
    return {};
  }
  return generate_targets(*scenario.targets, lengths, scenario.samples == 0);
}

/// Uses of samples, or parts, that alone exceed the policy's token budget.
std::int64_t over_budget(const BatchingPolicy& policy,
                         const EpochPlan& epoch,
                         const std::vector<std::int64_t>& lengths) {
  const auto budget = policy.token_budget();
  std::int64_t count = 0;
  for (const Batches& batches : epoch.batches) {
    for (const auto& batch : batches) {
      for (const Piece& piece : epoch.pieces_of(batch, lengths)) {
        count += budget && static_cast<double>(piece.length) > *budget ? 1 : 0;
      }
    }
  }
  return count;
}

/// Raises InputError: the model does not take that many tokens.
void check_length(const Scenario& scenario, const PolicySpec& policy, std::int64_t length) {
  if (scenario.model.max_length > 0 && length > scenario.model.max_length) {
    throw InputError("policy '" + printable(policy.name) + "': a sample is " +
                     std::to_string(length) + " tokens long, but model '" + scenario.model.name +
                     "' takes at most " + std::to_string(scenario.model.max_length) +
                     "; cut the lengths with data.lengths.cap");
  }
}

}  // namespace

BucketLists bucket_lists(const Scenario& scenario) {
  const DdpOptions& ddp = scenario.ddp;
  const auto parameters = bucket_parameters(scenario.model);
  BucketLists lists;
  if (ddp.bucket_rule != BucketRule::PyTorch) {
    lists.initial = lists.rebuilt = hand_written(ddp, parameters);
    return lists;
  }
  const std::vector<int> order = ready_order(scenario.model);
  std::vector<std::int64_t> limits = {ddp.first_bucket_cap.value(), ddp.bucket_cap.value()};
  if (!ddp.bucket_caps.empty()) {
    limits.clear();
    for (const Bytes cap : ddp.bucket_caps) {
      limits.push_back(cap.value());
    }
  }
  const bool never_rebuilt = ddp.find_unused_parameters && !ddp.static_graph;
  const bool limited = never_rebuilt || ddp.torch == "1.8" || !ddp.bucket_caps.empty();
  lists.initial = initial_buckets(parameters, limited, limits);
  lists.rebuilt = never_rebuilt ? lists.initial
                                : rebuilt_buckets(parameters, order, limits, ddp.last_bucket_cap);
  return lists;
}

std::vector<std::int64_t> data_lengths(const Scenario& scenario, const PolicySpec& policy) {
  return generate_lengths(policy.lengths ? *policy.lengths : scenario.lengths, scenario.samples);
}

EpochEffects plan_effects(const Scenario& of_all_policies, const PolicySpec& policy) {
  const Scenario scenario = with_attention_of(policy, of_all_policies);
  const std::vector<std::int64_t> all_lengths = data_lengths(scenario, policy);
  const std::vector<std::int64_t> lengths = run_lengths(scenario, policy, all_lengths);
  const std::vector<std::int64_t> targets = data_targets(scenario, lengths);
  const PolicyInput input = policy_input(scenario, policy, lengths, targets);
  return named(policy, [&] {
    const BatchingPolicy planner = make_policy(policy);
    EpochEffects effects;
    const auto start = std::chrono::steady_clock::now();
    EpochPlan epoch = planner.epoch(input);
    effects.planning_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (is_varlen(scenario)) {
      effects.varlen = fit_into_slots(epoch, all_lengths, scenario.varlen, scenario.model.causal);
    }
    effects.training = training_effects(
        epoch, input, [&planner](std::int64_t longest) { return planner.padded_length(longest); });
    effects.training.over_budget_samples = over_budget(planner, epoch, lengths);
    return effects;
  });
}

Plan make_plan(const Scenario& of_all_policies, const PolicySpec& policy) {
  const Scenario scenario = with_attention_of(policy, of_all_policies);
  const std::vector<std::int64_t> all_lengths = data_lengths(scenario, policy);
  const std::vector<std::int64_t> lengths = run_lengths(scenario, policy, all_lengths);
  const BatchingPolicy planner = named(policy, [&] { return make_policy(policy); });
  if (!planner.cuts()) {
    for (const std::int64_t length : lengths) {
      check_length(scenario, policy, length);
    }
  }
  const std::vector<std::int64_t> targets = data_targets(scenario, lengths);
  const PolicyInput input = policy_input(scenario, policy, lengths, targets);
  const auto micro_batches = static_cast<std::size_t>(scenario.ddp.accumulation_steps);
  const auto batches = named(policy, [&] {
    return plan_steps(
        planner, input, scenario.steps * scenario.ddp.accumulation_steps, [&](EpochPlan& epoch) {
          if (is_varlen(scenario)) {
            (void)fit_into_slots(epoch, all_lengths, scenario.varlen, scenario.model.causal);
          }
        });
  });

  Plan plan;
  plan.scenario = scenario.name;
  plan.policy = policy.name;
  plan.seed = scenario.seed;
  plan.ranks = scenario.ranks;
  plan.steps = scenario.steps;
  plan.warmup_steps = scenario.warmup_steps;
  plan.model = scenario.model;
  plan.optimizer = scenario.optimizer;
  const BucketLists lists = bucket_lists(scenario);
  plan.initial_buckets = indices(lists.initial);
  plan.buckets = indices(lists.rebuilt);
  for (std::size_t first = 0; first < batches.size(); first += micro_batches) {
    add_step(scenario,
             policy,
             input,
             {batches.begin() + static_cast<std::ptrdiff_t>(first),
              batches.begin() + static_cast<std::ptrdiff_t>(first + micro_batches)},
             plan);
  }
  for (MicroBatch& batch : plan.micro_batches) {
    const std::int64_t longest = batch.shape().max_length;
    const std::int64_t padded = is_varlen(scenario)
                                    ? longest
                                    : named(policy, [&] { return planner.padded_length(longest); });
    check_length(scenario, policy, padded);
    batch.padded_length = padded > longest ? padded : 0;
  }
  return plan;
}

}  // namespace stepsim
