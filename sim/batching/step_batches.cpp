#include "sim/batching/step_batches.h"

#include <algorithm>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

void check_epoch(const EpochBatches& epoch, const PolicyInput& input) {
  for (std::size_t rank = 0; rank < epoch.size(); ++rank) {
    if (epoch[rank].empty()) {
      throw InputError(
          "rank {} has no batch at all: of {} samples over {} ranks the policy keeps too "
          "few; they are longer than it takes, or do not fill a step{}",
          rank,
          input.lengths.size(),
          input.ranks,
          input.sampler.drop_last ? " (drop_last leaves partial batches out)" : "");
    }
  }
}

}  // namespace

EpochPlan plan_epoch(const BatchingPolicy& policy, const PolicyInput& input) {
  if (!input.lengths.empty() && input.ranks > 0 && at(input.ranks) > input.lengths.size()) {
    throw InputError("{} ranks for {} samples: there must be at least one a rank",
                     input.ranks,
                     input.lengths.size());
  }
  EpochPlan epoch = policy.epoch(input);
  check_epoch(epoch.batches, input);
  return epoch;
}

StepBatches::StepBatches(const BatchingPolicy& policy,
                         PolicyInput input,
                         const EpochPlan& first,
                         std::function<void(EpochPlan&)> revise)
    : policy_(policy),
      input_(std::move(input)),
      revise_(std::move(revise)),
      first_(first),
      places_(first.batches.size()) {}

std::vector<std::vector<Piece>> StepBatches::next() {
  std::vector<std::vector<Piece>> step;
  step.reserve(places_.size());
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    Place& place = places_[rank];
    if (place.batch == epoch(place.epoch).batches[rank].size()) {
      place = {place.epoch + (input_.sampler.set_epoch ? 1 : 0), 0};
      if (place.epoch > later_.size()) {
        forget_old_epochs();
        plan_next();
      }
    }
    const EpochPlan& own = epoch(place.epoch);
    step.push_back(own.pieces_of(own.batches[rank][place.batch++], input_.lengths));
  }
  return step;
}

void StepBatches::plan_next() {
  ++input_.epoch;
  EpochPlan& next = later_.emplace_back(plan_epoch(policy_, input_));
  if (revise_) {
    revise_(next);
  }
}

void StepBatches::forget_old_epochs() {
  const std::size_t oldest = std::ranges::min(places_, {}, &Place::epoch).epoch;
  for (; forgotten_ + 1 < oldest; ++forgotten_) {
    later_[forgotten_] = {};
  }
}

}  // namespace stepsim
