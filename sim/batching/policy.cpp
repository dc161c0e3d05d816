#include "sim/batching/policy.h"

#include <stdexcept>
#include <utility>

#include "costmodel/base/input_error.h"
#include "sim/batching/loss_scale.h"

namespace stepsim {

BatchingPolicy::BatchingPolicy(const PolicyKind& kind, PolicySpec spec)
    : kind_(&kind), spec_(std::move(spec)) {
  PolicyParameters completed = spec_.parameters.completed(kind.name, kind.parameters);
  if (kind.check != nullptr) {
    kind.check(completed);
  }
  check_weighting(spec_.weighting);
  if (spec_.pad_to_multiple_of < 1) {
    throw InputError("pad_to_multiple_of: {} is below 1", spec_.pad_to_multiple_of);
  }
  if (kind.step_cost_use != nullptr) {
    step_cost_use_ = kind.step_cost_use(spec_.parameters);
  }
  spec_.parameters = std::move(completed);
  if (std::holds_alternative<PolicyKind::PlaysFile>(kind.epoch) && !spec_.played) {
    throw std::logic_error("the batches of a policy that plays a file were not read");
  }
}

bool BatchingPolicy::cuts() const {
  return std::holds_alternative<PolicyKind::CutSamples>(kind_->epoch);
}

std::optional<double> BatchingPolicy::token_budget() const {
  return kind_->token_budget ? kind_->token_budget(spec_.parameters) : std::nullopt;
}

std::optional<SortWindow> BatchingPolicy::sort_window(std::int64_t samples) const {
  if (kind_->sort_window == nullptr) {
    return std::nullopt;
  }
  return kind_->sort_window(spec_.parameters, samples);
}

std::int64_t BatchingPolicy::padded_length(std::int64_t longest) const {
  if (longest > 0 && kind_->padded_length != nullptr) {
    longest = kind_->padded_length(spec_.parameters, longest);
  }
  return padded_to_multiple(longest, spec_.pad_to_multiple_of);
}

EpochPlan BatchingPolicy::epoch(const PolicyInput& input) const {
  if (played() != nullptr) {
    throw std::logic_error("a policy that plays a file forms no batches");
  }
  if (const auto* keep = std::get_if<PolicyKind::KeepSamples>(&kind_->epoch)) {
    return {(*keep)(spec_.parameters, input), {}};
  }
  EpochPlan plan = std::get<PolicyKind::CutSamples>(kind_->epoch)(spec_.parameters, input);
  if (!plan.pieces.empty() && !input.targets.empty()) {
    throw InputError(
        "cuts samples that have second lengths: what belongs to each part is not known; leave "
        "data.targets out or data.lengths.cap in");
  }
  return plan;
}

std::int64_t padded_to_multiple(std::int64_t length, std::int64_t multiple) {
  return (length + multiple - 1) / multiple * multiple;
}

}  // namespace stepsim
