#include "sim/study/tune/reduce_bound.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/transformer.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/parallel/ddp/compiled_graphs.h"
#include "sim/parallel/trained_model.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_cost.h"
#include "sim/predict/step_lowering.h"

namespace stepsim {
namespace {

/// The share of a gradient's bytes that is sent; none where that is more than a factor.
std::optional<double> sent_share(const Scenario& scenario) {
  switch (scenario.ddp.hook) {
    case CommunicationHook::None:
    case CommunicationHook::AllReduce:
      return 1.0;
    case CommunicationHook::Fp16:
    case CommunicationHook::Bf16: {
      constexpr double kHalf = 2;  // Bytes of an element in 16 bits.
      return std::min(1.0,
                      kHalf / static_cast<double>(element_size(scenario.model.parameter_dtype)));
    }
    default:
      return std::nullopt;
  }
}

/// Prices the collectives and copies of one setting.
class ReducePrices {
 public:
  ReducePrices(const Scenario& scenario, const Profile& profile)
      : scenario_(scenario),
        pricer_(scenario_pricer(scenario, profile)),
        costs_(cost_model(scenario, profile)) {}

  [[nodiscard]] double collective(CollectiveKind kind, double bytes) const {
    return pricer_
        .price(kind,
               Bytes(static_cast<std::int64_t>(std::floor(bytes))),
               scenario_.ranks,
               scenario_.placement.nodes())
        .cost.seconds;
  }
  [[nodiscard]] double copy_out(std::int64_t elements) const {
    return costs_
        ->op(elements_op(OpClass::GradientCopyOut, elements, scenario_.model.parameter_dtype), {})
        .seconds;
  }
  [[nodiscard]] double launch() const {
    return scenario_.host.launch ? to_seconds(*scenario_.host.launch) : costs_->launch_seconds();
  }

 private:
  const Scenario& scenario_;
  CollectivePricer pricer_;
  std::unique_ptr<CostModel> costs_;
};

/// How much slower than others the fastest and the slowest rank are.
std::pair<double, double> rank_factors(const Scenario& scenario, const Profile& profile) {
  std::vector<double> factors(at(scenario.ranks), 1);
  for (const SlowRank& slow : slow_ranks(scenario, profile)) {
    factors[at(slow.rank)] *= slow.factor;
  }
  const auto [fastest, slowest] = std::ranges::minmax(factors);
  return {fastest, slowest};
}

/// ZeRO-3: each micro-batch gathers all units in its forward, and all but the root again in its
/// backward, whose gradients are scattered in the last one.
ReduceBound fully_sharded_bound(const Scenario& scenario,
                                const TrainedModel& model,
                                const ReducePrices& prices) {
  ReduceBound bound;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    if (model.units[unit].empty()) {
      continue;
    }
    const auto bytes = static_cast<double>(sum_of(model.units[unit], [&](const int parameter) {
      return model.parameters[at(parameter)].bytes;
    }));
    const int gathers = (unit == 0 ? 1 : 2) * scenario.ddp.accumulation_steps;
    bound.gather_s += gathers * prices.collective(CollectiveKind::AllGather, bytes);
    bound.buckets.push_back({0, prices.collective(CollectiveKind::ReduceScatter, bytes)});
  }
  return bound;
}

/// The buckets of DDP with the ops that complete them, and the prices of their reduction.
std::vector<ReduceBound::Bucket> reduced_buckets(const std::vector<Bucket>& list,
                                                 const TrainedModel& model,
                                                 double share,
                                                 CollectiveKind kind,
                                                 const ReducePrices& prices) {
  std::vector<std::size_t> op_of(model.parameters.size(), 0);
  for (std::size_t op = 0; op < model.completes.size(); ++op) {
    for (const int parameter : model.completes[op]) {
      op_of[at(parameter)] = op;
    }
  }
  std::size_t last = 0;
  return mapped(list, [&](const Bucket& bucket) {
    for (const int parameter : bucket.parameters) {
      last = std::max(last, op_of[at(parameter)]);
    }
    const auto bytes = static_cast<double>(bucket_bytes(bucket, model.parameters));
    return ReduceBound::Bucket{last, prices.collective(kind, share * bytes)};
  });
}

double total_seconds(const std::vector<ReduceBound::Bucket>& buckets) {
  return sum_of(buckets, [](const ReduceBound::Bucket& bucket) { return bucket.seconds; });
}

/// Adds the copies from the buckets to the gradients: what follows the last all-reduce at least, in
/// that share of the steady steps. Returns what a step takes for all of them at most.
double add_copies(const Scenario& scenario,
                  const Profile& profile,
                  const TrainedModel& model,
                  const std::vector<Bucket>& list,
                  double share,
                  const ReducePrices& prices,
                  ReduceBound& bound) {
  const DdpOptions& ddp = scenario.ddp;
  if (ddp.gradient_as_bucket_view || ddp.optimizer_in_backward || ddp.zero_stage >= 2) {
    return 0;
  }
  const auto [fastest, slowest] = rank_factors(scenario, profile);
  double most = 0;
  double last = 0;
  for (const Bucket& bucket : list) {
    const double seconds = sum_of(bucket.parameters, [&](const int parameter) {
      return prices.copy_out(model.elements(parameter));
    });
    last = fastest * seconds;
    most += slowest * seconds + prices.launch() * static_cast<double>(bucket.parameters.size());
  }
  bound.copy_out_s += share * last;
  return most;
}

/// The share of the steady steps whose last micro-batch comes before DDP rebuilds its buckets.
double initial_share(const Scenario& scenario) {
  const int synchronised =
      scenario.ddp.no_sync ? 1 : scenario.ddp.accumulation_steps;  // In a step.
  const int first = first_rebuilt(scenario.ddp);
  const int before = first > 0 ? (first - 1) / synchronised : 0;
  return static_cast<double>(
             std::max(0, std::min(before, scenario.steps) - scenario.warmup_steps)) /
         (scenario.steps - scenario.warmup_steps);
}

/// DDP, or the first two stages of ZeRO: both lists, each in its share of the steady steps.
ReduceBound bucketed_bound(const Scenario& scenario,
                           const Profile& profile,
                           const TrainedModel& model,
                           double sent,
                           const ReducePrices& prices) {
  const DdpOptions& ddp = scenario.ddp;
  const CollectiveKind kind =
      ddp.zero_stage == 2 ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce;
  const BucketLists lists = bucket_lists(scenario);
  const double initial = initial_share(scenario);
  ReduceBound bound;
  const std::pair<const std::vector<Bucket>&, double> parts[] = {{lists.initial, initial},
                                                                 {lists.rebuilt, 1 - initial}};
  for (const auto& [list, share] : parts) {
    bound.buckets = reduced_buckets(list, model, sent, kind, prices);
    const double all = total_seconds(bound.buckets);
    const double copies = add_copies(scenario, profile, model, list, share, prices, bound);
    bound.warmup_s = std::max(bound.warmup_s, all + copies);
    if (&list == &lists.initial && !bound.buckets.empty()) {
      bound.initial_s = share * all;
      bound.initial_last_s = share * bound.buckets.back().seconds;
    }
    if (ddp.zero_stage == 2) {
      for (const Bucket& bucket : list) {
        bound.after_s +=
            share * prices.collective(CollectiveKind::AllGather,
                                      static_cast<double>(bucket_bytes(bucket, model.parameters)));
      }
    }
  }
  for (ReduceBound::Bucket& bucket : bound.buckets) {
    bucket.seconds *= 1 - initial;
  }
  if (ddp.zero_stage == 1 && !ddp.zero_broadcast_by_rank) {
    for (const BucketParameter& parameter : model.parameters) {
      bound.after_s +=
          prices.collective(CollectiveKind::Broadcast, static_cast<double>(parameter.bytes));
    }
  }
  return bound;
}

}  // namespace

ReduceBound reduce_bound(const Scenario& scenario, const Profile& profile) {
  const DdpOptions& ddp = scenario.ddp;
  const std::optional<double> share = sent_share(scenario);
  ReduceBound bound;
  if (!share || ddp.mixed_param_dtype || ddp.mixed_reduce_dtype ||
      scenario.model.sparse_embeddings || !ddp.unused_parameters.empty()) {
    return bound;
  }
  const ReducePrices prices(scenario, profile);
  const TrainedModel model =
      with_compiled_graphs(trained_model(scenario.model, step_ops(scenario), {}), ddp);
  bound = ddp.zero_stage == 3 ? fully_sharded_bound(scenario, model, prices)
                              : bucketed_bound(scenario, profile, model, *share, prices);
  bound.known = true;
  bound.streams = scenario.gloo ? 2 : 1;
  return bound;
}

}  // namespace stepsim
