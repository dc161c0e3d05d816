#include "sim/batching/plan_steps.h"

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

std::vector<std::vector<std::vector<Piece>>> plan_steps(
    const BatchingPolicy& policy,
    PolicyInput input,
    int steps,
    const std::function<void(EpochPlan&)>& revise) {
  if (steps < 1) {
    throw InputError("steps: {} is below 1", steps);
  }
  if (!input.lengths.empty() && input.ranks > 0 &&
      static_cast<std::size_t>(input.ranks) > input.lengths.size()) {
    throw InputError("{} ranks for {} samples: there must be at least one a rank",
                     input.ranks,
                     input.lengths.size());
  }
  std::vector<EpochPlan> epochs;
  const auto epoch_of = [&](std::size_t number) -> const EpochPlan& {
    while (epochs.size() <= number) {
      epochs.push_back(policy.epoch(input));
      check_epoch(epochs.back().batches, input);
      if (revise) {
        revise(epochs.back());
      }
      ++input.epoch;
    }
    return epochs[number];
  };
  std::vector<std::vector<std::vector<Piece>>> plan(static_cast<std::size_t>(steps));
  for (std::size_t rank = 0; rank < epoch_of(0).batches.size(); ++rank) {
    std::size_t number = 0;
    std::size_t next = 0;
    for (auto& step : plan) {
      if (next == epoch_of(number).batches[rank].size()) {
        number += input.sampler.set_epoch ? 1 : 0;
        next = 0;
      }
      const EpochPlan& epoch = epoch_of(number);
      step.push_back(epoch.pieces_of(epoch.batches[rank][next++], input.lengths));
    }
  }
  return plan;
}

}  // namespace stepsim
