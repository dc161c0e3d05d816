#include "sim/study/tune/reduce_bound.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_cost.h"
#include "sim/predict/step_lowering.h"

namespace stepsim {
namespace {

/// How much slower than others the fastest and the slowest rank are.
std::pair<double, double> rank_factors(const Scenario& scenario, const Profile& profile) {
  std::vector<double> factors(at(scenario.ranks), 1);
  for (const SlowRank& slow : slow_ranks(scenario, profile)) {
    factors[at(slow.rank)] *= slow.factor;
  }
  const auto [fastest, slowest] = std::ranges::minmax(factors);
  return {fastest, slowest};
}

}  // namespace

ReduceBound reduce_bound(const Scenario& scenario, const Profile& profile) {
  const ParallelJob job = parallel_job(scenario);
  if (!scenario.parallel->facts(job).bounds_reduction) {
    return {};
  }
  // What is too far outside the measured sizes is refused when the point is priced.
  const CollectivePricer pricer = scenario_pricer(scenario, profile).at_any_size();
  const std::unique_ptr<CostModel> costs = cost_model(scenario, profile);
  BoundPrices prices;
  prices.collective = [&](CollectiveKind kind, double bytes) {
    const Bytes whole(static_cast<std::int64_t>(std::floor(bytes)));
    return pricer.price(kind, whole, scenario.ranks, scenario.placement.nodes()).cost.seconds;
  };
  prices.copy_out = [&](std::int64_t elements) {
    const Dtype dtype = scenario.model.parameter_dtype;
    return costs->op(elements_op(OpClass::GradientCopyOut, elements, dtype), {}).seconds;
  };
  prices.launch_s =
      scenario.host.launch ? to_seconds(*scenario.host.launch) : costs->launch_seconds();
  std::tie(prices.fastest_rank, prices.slowest_rank) = rank_factors(scenario, profile);
  const ParallelParts parts = scenario.parallel->parts(job, step_ops(scenario));
  ReduceBound bound = scenario.parallel->reduce_bound(job, parts, prices);
  bound.known = true;
  bound.streams = scenario.gloo ? 2 : 1;
  return bound;
}

}  // namespace stepsim
