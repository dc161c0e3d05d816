#include "sim/batching/policy.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// Raises InputError: see BatchingPolicy.
void check_padding(const PolicySpec& spec, bool chooses) {
  if (spec.pad_to_multiple_of < 1) {
    throw InputError("pad_to_multiple_of: {} is below 1", spec.pad_to_multiple_of);
  }
  if (chooses && (spec.pad_to_multiple_of > 1 || !spec.pad_to_lengths.empty())) {
    throw FieldError(spec.pad_to_lengths.empty() ? "pad_to_multiple_of" : "pad_to_lengths",
                     fmt::format("{} chooses by itself what it pads to; leave it out", spec.kind));
  }
  const std::vector<std::int64_t>& lengths = spec.pad_to_lengths;
  if (lengths.empty()) {
    return;
  }
  if (spec.pad_to_multiple_of > 1) {
    throw FieldError("pad_to_lengths", "does not go with pad_to_multiple_of; give one of them");
  }
  if (lengths.front() < 1) {
    throw FieldError("pad_to_lengths", fmt::format("{} is below 1", lengths.front()));
  }
  for (std::size_t i = 1; i < lengths.size(); ++i) {
    if (lengths[i] <= lengths[i - 1]) {
      throw FieldError(
          "pad_to_lengths",
          fmt::format(
              "{} follows {}; expected each length once, ascending", lengths[i], lengths[i - 1]));
    }
  }
}

}  // namespace

BatchingPolicy::BatchingPolicy(const PolicyKind& kind, PolicySpec spec)
    : kind_(&kind), spec_(std::move(spec)) {
  PolicyParameters completed = spec_.parameters.completed(kind.name, kind.parameters);
  if (kind.check != nullptr) {
    kind.check(completed);
  }
  check_padding(spec_, chooses_padding());
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

bool BatchingPolicy::chooses_padding() const {
  return std::holds_alternative<PolicyKind::ChoosePadding>(kind_->epoch);
}

std::optional<double> BatchingPolicy::token_budget() const {
  return kind_->token_budget ? kind_->token_budget(spec_.parameters) : std::nullopt;
}

std::optional<double> BatchingPolicy::batch_size() const {
  return spec_.parameters.maybe_number("batch_size");
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
  return spec_.pad_to_lengths.empty() ? padded_to_multiple(longest, spec_.pad_to_multiple_of)
                                      : padded_to_rung(longest, spec_.pad_to_lengths);
}

std::int64_t BatchingPolicy::padded_length(std::int64_t longest, const EpochPlan& epoch) const {
  return epoch.pad_to_lengths.empty() ? padded_length(longest)
                                      : padded_to_rung(longest, epoch.pad_to_lengths);
}

BatchingPolicy BatchingPolicy::with_padding(std::int64_t pad_to_multiple_of,
                                            std::vector<std::int64_t> pad_to_lengths) const {
  BatchingPolicy other = *this;
  other.spec_.pad_to_multiple_of = pad_to_multiple_of;
  other.spec_.pad_to_lengths = std::move(pad_to_lengths);
  check_padding(other.spec_, chooses_padding());
  return other;
}

EpochPlan BatchingPolicy::epoch(const PolicyInput& input) const {
  if (played() != nullptr) {
    throw std::logic_error("a policy that plays a file forms no batches");
  }
  if (const auto* keep = std::get_if<PolicyKind::KeepSamples>(&kind_->epoch)) {
    return {(*keep)(spec_.parameters, input), {}};
  }
  if (const auto* choose = std::get_if<PolicyKind::ChoosePadding>(&kind_->epoch)) {
    return choose->form(spec_.parameters, input);
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

std::int64_t padded_to_rung(std::int64_t length, std::span<const std::int64_t> rungs) {
  if (length == 0) {
    return 0;
  }
  const auto rung = std::ranges::lower_bound(rungs, length);
  if (rung == rungs.end()) {
    throw InputError("a sample is {} tokens long, but the longest of pad_to_lengths is {}",
                     length,
                     rungs.empty() ? 0 : rungs.back());
  }
  return *rung;
}

}  // namespace stepsim
