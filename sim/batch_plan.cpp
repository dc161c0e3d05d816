#include "sim/batch_plan.h"

#include "costmodel/input_error.h"

namespace stepsim {

namespace {

std::vector<std::vector<int>> indices(const std::vector<Bucket>& buckets) {
  std::vector<std::vector<int>> lists;
  lists.reserve(buckets.size());
  for (const Bucket& bucket : buckets) {
    lists.push_back(bucket.parameters);
  }
  return lists;
}

}  // namespace

BucketLists bucket_lists(const Scenario& scenario) {
  const auto parameters = bucket_parameters(scenario.model);
  const std::int64_t first = scenario.ddp.first_bucket_cap.value();
  const std::int64_t cap = scenario.ddp.bucket_cap.value();
  BucketLists lists;
  lists.initial = initial_buckets(parameters, scenario.ddp.find_unused_parameters, first, cap);
  lists.rebuilt = scenario.ddp.find_unused_parameters
                      ? lists.initial
                      : rebuilt_buckets(parameters, ready_order(scenario.model), first, cap);
  return lists;
}

std::vector<std::int64_t> data_lengths(const Scenario& scenario, const PolicySpec& policy) {
  return generate_lengths(policy.lengths ? *policy.lengths : scenario.lengths, scenario.samples);
}

Plan make_plan(const Scenario& scenario, const PolicySpec& policy) {
  const std::vector<std::int64_t> lengths = data_lengths(scenario, policy);
  if (scenario.model.max_length > 0) {
    for (const std::int64_t length : lengths) {
      if (length > scenario.model.max_length) {
        throw InputError(
            "policy '" + printable(policy.name) + "': a sample is " + std::to_string(length) +
            " tokens long, but model '" + scenario.model.name + "' takes at most " +
            std::to_string(scenario.model.max_length) + "; cut the lengths with data.lengths.cap");
      }
    }
  }
  PolicyInput input;
  input.lengths = lengths;
  input.sampler = scenario.sampler;
  input.ranks = scenario.ranks;
  const auto former = make_policy(policy);
  const auto steps = plan_steps(*former, input, scenario.steps);

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
  for (std::size_t step = 0; step < steps.size(); ++step) {
    std::vector<MicroBatch> batches;
    for (std::size_t rank = 0; rank < steps[step].size(); ++rank) {
      MicroBatch batch;
      batch.step = static_cast<int>(step);
      batch.rank = static_cast<int>(rank);
      batch.samples = steps[step][rank];
      for (const std::int64_t sample : batch.samples) {
        batch.lengths.push_back(lengths[static_cast<std::size_t>(sample)]);
      }
      batches.push_back(std::move(batch));
    }
    std::vector<BatchShape> shapes;
    for (const MicroBatch& batch : batches) {
      shapes.push_back(batch.shape());
    }
    const auto scales = loss_scales(policy.weighting, shapes);
    for (std::size_t rank = 0; rank < batches.size(); ++rank) {
      batches[rank].loss_scale = scales[rank];
      plan.micro_batches.push_back(std::move(batches[rank]));
    }
  }
  return plan;
}

}  // namespace stepsim
