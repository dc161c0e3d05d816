#include "sim/predict/run/run_loads.h"

#include <algorithm>
#include <map>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "sim/predict/metrics.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

/// The scenario's jitter, else the profile's. stepcal fits ops to the median of single steps, and
/// its jitter is the deviation around that; all other times are means, and all quantiles are of
/// steps over their mean.
Jitter jitter_of(const Scenario& scenario, const NoiseProfile& measured) {
  const bool is_own = scenario.jitter || !scenario.noise.step_quantiles.empty();
  Jitter jitter;
  jitter.log_normal =
      is_own ? of_mean_one(scenario.jitter.value_or(0)) : of_median_one(measured.step_jitter);
  jitter.quantiles = of_mean_one(is_own ? scenario.noise.step_quantiles : measured.step_quantiles);
  jitter.correlation =
      scenario.noise.rank_correlation.value_or(is_own ? 0 : measured.rank_correlation);
  return jitter;
}

/// Rank r has 1 + skew r / (ranks - 1) times the work of its batches.
void add_skew(const Scenario& scenario, RunLoads& loads) {
  const auto micro = at(scenario.ddp.accumulation_steps);
  const auto ranks = at(scenario.ranks);
  for (std::size_t i = 0; ranks > 1 && i < loads.batch_factor.size(); ++i) {
    const auto rank = static_cast<double>(i / micro % ranks);
    loads.batch_factor[i] = 1 + scenario.skew * rank / static_cast<double>(ranks - 1);
  }
}

/// Scales batches so that a step's ranks, or one rank, compute as long as the mean or the median.
void balance(const Scenario& scenario,
             const PlannedRun& planned,
             const PricedBatches& priced,
             const Counterfactual& counterfactual,
             RunLoads& loads) {
  const bool all = counterfactual.change == Change::Balanced;
  const auto micro = at(scenario.ddp.accumulation_steps);
  const std::size_t per_step = micro * at(scenario.ranks);
  const std::vector<double> seconds = mapped(priced.prices(), [&](const PricedBatch& batch) {
    return priced.lowering().compute_seconds(batch);
  });
  loads.by_rank = false;
  for (std::size_t first = 0; first < planned.batches.size(); first += per_step) {
    std::vector<double> times(at(scenario.ranks), 0.0);
    std::vector<double> of_active;  // A rank that is out of inputs has no load to balance.
    for (std::size_t r = 0; r < times.size(); ++r) {
      if (planned.batch(first + r * micro).samples == 0) {
        continue;
      }
      for (std::size_t m = 0; m < micro; ++m) {
        const std::size_t number = first + r * micro + m;
        times[r] += loads.batch_factor[number] * seconds[planned.batch(number).price];
      }
      of_active.push_back(times[r]);
    }
    const double wanted = all ? mean(of_active) : quantile(of_active, 0.5);
    for (std::size_t r = 0; r < at(scenario.ranks); ++r) {
      const bool changes = all || static_cast<int>(r) == counterfactual.rank;
      for (std::size_t m = 0; changes && m < micro && times[r] > 0; ++m) {
        loads.batch_factor[first + r * micro + m] *= wanted / times[r];
      }
    }
  }
}

/// The profile's costs of new shapes hold for the model that was recorded with them.
void add_shape_stalls(const Scenario& scenario,
                      const Profile& profile,
                      const PlannedRun& planned,
                      bool host_is_device,
                      RunLoads& loads) {
  const NewShapes& stated = scenario.new_shapes;
  if (stated.mechanisms) {
    loads.shape_costs = *stated.mechanisms;
  } else if (!profile.recorded || prices_recorded_model(scenario, profile)) {
    loads.shape_costs = profile.new_shapes;
  }
  check_mechanisms(loads.shape_costs, host_is_device);
  if (loads.shape_costs.empty()) {
    return;
  }
  const std::vector<BatchShape> shapes = mapped(planned.batches, [&](std::uint32_t number) {
    return cached_shape(scenario, planned.different[number].shape);
  });
  loads.shape_stalls =
      shape_stalls(loads.shape_costs, shapes, scenario.ranks, scenario.ddp.accumulation_steps);
  for (std::size_t i = 0; i < loads.shape_stalls.size(); ++i) {
    loads.by_rank = loads.by_rank && loads.shape_stalls[i].load == 1;
    loads.batch_factor[i] *= loads.shape_stalls[i].load;
  }
}

}  // namespace

std::vector<std::uint32_t> classes_of_ranks(const RunLoads& loads) {
  std::map<std::pair<double, double>, std::uint32_t> known;
  std::vector<std::uint32_t> classes;
  for (std::size_t rank = 0; rank < loads.rank_factor.size(); ++rank) {
    const std::pair factors(loads.rank_factor[rank], loads.batch_factor[rank]);
    classes.push_back(
        known.try_emplace(factors, static_cast<std::uint32_t>(known.size())).first->second);
  }
  return classes;
}

RunLoads run_loads(const Scenario& scenario,
                   const Profile& profile,
                   const PlannedRun& planned,
                   const PricedBatches& priced,
                   const std::optional<Counterfactual>& counterfactual) {
  RunLoads loads;
  loads.batch_factor.assign(planned.batches.size(), 1.0);
  if (scenario.skew > 0) {
    add_skew(scenario, loads);
  }
  const bool balanced = counterfactual && (counterfactual->change == Change::Balanced ||
                                           counterfactual->change == Change::MedianRank);
  if (balanced) {
    balance(scenario, planned, priced, *counterfactual, loads);
  }
  add_shape_stalls(scenario, profile, planned, priced.costs().host_is_device(), loads);
  loads.rank_factor.assign(at(scenario.ranks), 1.0);
  for (const SlowRank& slow : scenario.slow_ranks) {
    loads.rank_factor[at(slow.rank)] *= slow.factor;
  }
  const double cores = scenario.cores.value_or(profile.cores);
  loads.cores = cores < scenario.placement.fullest() ? cores : 0;
  loads.jitter = jitter_of(scenario, profile.noise);
  return loads;
}

}  // namespace stepsim
