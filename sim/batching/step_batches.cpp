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

StepBatches::StepBatches(const BatchingPolicy& policy,
                         PolicyInput input,
                         std::function<void(EpochPlan&)> revise)
    : policy_(policy), input_(std::move(input)), revise_(std::move(revise)) {
  if (!input_.lengths.empty() && input_.ranks > 0 && at(input_.ranks) > input_.lengths.size()) {
    throw InputError("{} ranks for {} samples: there must be at least one a rank",
                     input_.ranks,
                     input_.lengths.size());
  }
  plan_epoch();
  places_.resize(first_epoch().batches.size());
}

std::vector<std::vector<Piece>> StepBatches::next() {
  std::vector<std::vector<Piece>> step;
  step.reserve(places_.size());
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    Place& place = places_[rank];
    if (place.batch == epochs_[place.epoch].batches[rank].size()) {
      place = {place.epoch + (input_.sampler.set_epoch ? 1 : 0), 0};
      if (place.epoch == epochs_.size()) {
        forget_old_epochs();
        plan_epoch();
      }
    }
    const EpochPlan& epoch = epochs_[place.epoch];
    step.push_back(epoch.pieces_of(epoch.batches[rank][place.batch++], input_.lengths));
  }
  return step;
}

void StepBatches::plan_epoch() {
  EpochPlan& epoch = epochs_.emplace_back(policy_.epoch(input_));
  check_epoch(epoch.batches, input_);
  if (revise_) {
    revise_(epoch);
  }
  ++input_.epoch;
}

void StepBatches::forget_old_epochs() {
  const std::size_t oldest = std::ranges::min(places_, {}, &Place::epoch).epoch;
  while (forgotten_ + 1 < oldest) {
    epochs_[++forgotten_] = {};
  }
}

}  // namespace stepsim
