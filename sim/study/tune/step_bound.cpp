#include "sim/study/tune/step_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/transformer.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/batching/training_effects.h"
#include "sim/ddp/ddp_model.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/priced_run.h"

namespace stepsim {
namespace {

/// One rank in one step.
struct RankWorkBound {
  double before = 0;  ///< Before anything can be reduced.
  double all = 0;
};

/// Forward and backward of a micro-batch with what DDP adds to them, or without where that depends
/// on more than the schedule.
std::pair<double, double> pass_times(const PricedRun& run, std::size_t batch) {
  const StepPricer& model = run.model();
  const PricedBatch& priced = run.priced_batch(batch);
  const double load = run.batch_factor(batch);
  if (!run.plain()) {
    const auto [forward, backward] = model.model_seconds(priced);
    return {forward * load, backward * load};
  }
  const auto time = [&](const std::vector<std::int32_t>& work) {
    double seconds = 0;
    for (const std::int32_t one : work) {
      seconds += model.seconds_of(priced, one) * (model.is_of_model(one) ? load : 1);
    }
    return seconds;
  };
  const StepSchedule& schedule = run.plain_steps().back().schedule;
  double backward = 0;
  for (const auto& work : schedule.backward) {
    backward += time(work);
  }
  return {time(schedule.forward), backward};
}

double optimizer_time(const PricedRun& run) {
  if (!run.plain()) {
    return 0;
  }
  double seconds = 0;
  for (const std::int32_t work : run.plain_steps().back().schedule.optimizer) {
    seconds += run.model().seconds_of({}, work);
  }
  return seconds;
}

/// Whether every step ends with a collective that all ranks wait for.
bool all_ranks_wait(const Scenario& scenario) {
  const CommunicationHook hook = scenario.ddp.hook;
  return hook != CommunicationHook::PostLocalSgd && hook != CommunicationHook::Noop &&
         scenario.ddp.join_steps.empty();
}

/// [rank] in one step.
std::vector<RankWorkBound> step_work(const PricedRun& run, int step) {
  const Scenario& scenario = run.scenario();
  const std::size_t micro = at(scenario.ddp.accumulation_steps);
  const std::size_t ranks = at(scenario.ranks);
  std::vector<RankWorkBound> work(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const double slowness = run.rank_factor(static_cast<int>(r));
    for (std::size_t m = 0; m < micro; ++m) {
      const std::size_t batch = (at(step) * ranks + r) * micro + m;
      const auto [forward, backward] = pass_times(run, batch);
      const bool reduces = m + 1 == micro || !scenario.ddp.no_sync;
      if (m == 0 || scenario.ddp.no_sync) {
        work[r].before += slowness * (reduces ? forward : forward + backward);
      }
      work[r].all += slowness * (forward + backward);
    }
  }
  return work;
}

}  // namespace

WorkBound work_bound(const Scenario& scenario,
                     const BatchingPolicy& policy,
                     const Profile& profile) {
  WorkBound bound;
  try {
    const PricedRun run(scenario, policy, profile);
    const int first = scenario.warmup_steps;
    const double steps = scenario.steps - first;
    const double optimizer = optimizer_time(run);
    const std::size_t micro = at(scenario.ddp.accumulation_steps);
    for (int step = first; step < scenario.steps; ++step) {
      const std::vector<RankWorkBound> ranks = step_work(run, step);
      RankWorkBound slowest;
      RankWorkBound fastest{std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        const double own = optimizer * run.rank_factor(static_cast<int>(r));
        slowest.before = std::max(slowest.before, ranks[r].before + own);
        slowest.all = std::max(slowest.all, ranks[r].all + own);
        fastest.before = std::min(fastest.before, ranks[r].before);
        fastest.all = std::min(fastest.all, ranks[r].all);
      }
      const RankWorkBound& counts = step == first ? fastest : slowest;
      bound.before_reduce_s += counts.before / steps;
      bound.compute_s += counts.all / steps;
    }
    std::set<BatchShape> shapes;
    const std::size_t per_step = at(scenario.ranks) * micro;
    for (std::size_t i = 0; i < run.batches(); ++i) {
      const RunBatch& batch = run.batch(i);
      const BatchShape& shape = batch.shape;
      shapes.insert(shape);
      if (i >= at(first) * per_step) {
        bound.useful_tokens += static_cast<double>(shape.useful_tokens) / steps;
        bound.samples += static_cast<double>(batch.samples) / steps;
      }
    }
    constexpr std::size_t kShapes = 16;
    bound.largest.assign(shapes.begin(), shapes.end());
    std::ranges::sort(bound.largest, std::greater(), [](const BatchShape& shape) {
      return static_cast<double>(shape.padded_tokens()) *
             static_cast<double>(shape.max_length + 4096);
    });
    bound.largest.resize(std::min(bound.largest.size(), kShapes));
    if (!all_ranks_wait(scenario)) {
      bound.compute_s = 0;
      bound.before_reduce_s = 0;
    }
    // Before the steady steps the host may have run ahead of the device, which shortens them.
    if (!run.host_is_device() && first == 0) {
      bound.host_s =
          run.model().launch_seconds() * static_cast<double>(run.model().model_ops() * micro);
    }
    const TrainingEffects effects = first_epoch_effects(run.scenario(), policy, run.planned());
    bound.displacement = effects.displacement;
    bound.lost_samples = effects.lost_samples;
  } catch (const InputError& error) {
    bound.refused = error.what();
  }
  return bound;
}

namespace {

/// Prices collectives of all ranks of a scenario.
class CollectiveSeconds {
 public:
  CollectiveSeconds(const Scenario& scenario, const Profile& profile)
      : scenario_(scenario), pricer_(collective_pricer(profile, scenario.topology, {1e9, 1e9})) {}

  [[nodiscard]] double of(CollectiveKind kind, double bytes) const {
    return pricer_
        .price(kind,
               Bytes(static_cast<std::int64_t>(std::floor(bytes))),
               scenario_.ranks,
               scenario_.placement.nodes())
        .cost.seconds;
  }

 private:
  const Scenario& scenario_;
  CollectivePricer pricer_;
};

/// ZeRO-3: each micro-batch gathers all units in its forward, and all but the root again in its
/// backward, whose gradients are scattered in the last one.
ReduceBound fully_sharded_bound(const Scenario& scenario, const CollectiveSeconds& seconds) {
  ReduceBound bound;
  const DdpModel model = ddp_model(scenario.model, step_ops(scenario.model), {});
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    if (model.units[unit].empty()) {
      continue;
    }
    const auto bytes = static_cast<double>(sum_of(model.units[unit], [&](const int parameter) {
      return model.parameters[at(parameter)].bytes;
    }));
    const int gathers = (unit == 0 ? 1 : 2) * scenario.ddp.accumulation_steps;
    bound.gather_s += gathers * seconds.of(CollectiveKind::AllGather, bytes);
    bound.total_s += seconds.of(CollectiveKind::ReduceScatter, bytes);
  }
  return bound;
}

}  // namespace

ReduceBound reduce_bound(const Scenario& scenario, const Profile& profile) {
  ReduceBound bound;
  const DdpOptions& ddp = scenario.ddp;
  const bool whole =
      ddp.hook == CommunicationHook::None || ddp.hook == CommunicationHook::AllReduce;
  const bool half = ddp.hook == CommunicationHook::Fp16 || ddp.hook == CommunicationHook::Bf16;
  if (scenario.ranks == 1 || !(whole || half) || ddp.mixed_param_dtype || ddp.mixed_reduce_dtype ||
      scenario.model.sparse_embeddings || !ddp.unused_parameters.empty()) {
    return bound;
  }
  const CollectiveSeconds seconds(scenario, profile);
  if (ddp.zero_stage == 3) {
    bound = fully_sharded_bound(scenario, seconds);
  } else {
    constexpr double kHalf = 2;  // Bytes of an element in 16 bits.
    const auto parameters = bucket_parameters(scenario.model);
    const auto element = static_cast<double>(element_size(scenario.model.parameter_dtype));
    const double share = half ? std::min(1.0, kHalf / element) : 1;
    const CollectiveKind kind =
        ddp.zero_stage == 2 ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce;
    for (const Bucket& bucket : bucket_lists(scenario).rebuilt) {
      const auto bytes = static_cast<double>(bucket_bytes(bucket, parameters));
      bound.last_s = seconds.of(kind, share * bytes);
      bound.total_s += bound.last_s;
      bound.after_s += ddp.zero_stage == 2 ? seconds.of(CollectiveKind::AllGather, bytes) : 0;
    }
    if (ddp.zero_stage == 1 && !ddp.zero_broadcast_by_rank) {
      for (const BucketParameter& parameter : parameters) {
        bound.after_s +=
            seconds.of(CollectiveKind::Broadcast, static_cast<double>(parameter.bytes));
      }
    }
  }
  if (scenario.gloo) {  // Two workers at once, which share the links.
    bound.gather_s /= 2;
    bound.total_s /= 2;
    bound.after_s /= 2;
  }
  return bound;
}

double least_step_s(const WorkBound& work, const ReduceBound& reduce) {
  if (work.compute_s == 0) {
    return work.host_s;
  }
  const double until_reduced = std::max({work.compute_s + reduce.last_s,
                                         work.before_reduce_s + reduce.total_s,
                                         reduce.gather_s + reduce.total_s});
  return std::max(until_reduced + reduce.after_s, work.host_s);
}

}  // namespace stepsim
