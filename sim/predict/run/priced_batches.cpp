#include "sim/predict/run/priced_batches.h"

#include <atomic>
#include <cstdint>
#include <utility>

#include "costmodel/base/mapped.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

/// The scenario's time of an empty block, unless the profile prices empty blocks itself.
double empty_block_seconds(const Scenario& scenario, const Profile& profile) {
  const double own = scenario.varlen.empty_block_seconds.value_or(0) / scenario.compute_speed;
  return prices_empty_blocks(profile) ? 0 : own;
}

std::atomic<std::int64_t>& prices_counted() {
  static std::atomic<std::int64_t> count{0};
  return count;
}

}  // namespace

std::int64_t batches_priced() {
  return prices_counted();
}

PricedBatches::PricedBatches(const Scenario& scenario,
                             std::shared_ptr<const Profile> profile,
                             const PlannedRun& planned)
    : scenario_(scenario),
      profile_(std::move(profile)),
      costs_(cost_model(scenario_, *profile_)),
      lowering_(scenario_, *costs_, empty_block_seconds(scenario_, *profile_)) {
  ++prices_counted();
  (void)lowering_.ddp_work(OpClass::Optimizer, parameter_count(scenario_.model));
  lowering_.price_ddp_work(OpClass::Optimizer);
  prices_ = mapped(planned.priced_shapes,
                   [&](const BatchShape& shape) { return lowering_.price(shape); });
  std::vector<double> counts(prices_.size(), 0);
  for (const std::uint32_t number : planned.batches) {
    ++counts[planned.different[number].price];
  }
  for (std::size_t i = 0; i < prices_.size(); ++i) {
    kernel_seconds_ += counts[i] / static_cast<double>(planned.batches.size()) *
                       lowering_.compute_seconds(prices_[i]);
  }
}

}  // namespace stepsim
