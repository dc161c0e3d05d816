#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "sim/batching/policy.h"

namespace stepsim {

/// The batches of an epoch, the one that `input` says.
/// Raises InputError: more ranks than samples, or a rank without a batch (drop_last).
[[nodiscard]] EpochPlan plan_epoch(const BatchingPolicy& policy, const PolicyInput& input);

/// The batches of a run's steps, one step after another. They are taken from epochs, which are
/// planned as the steps reach them.
///
/// Step t executes batch t modulo the rank's number of batches, as the token-skew lab does: a rank
/// that has used up its epoch starts the same batches again, without a new shuffle and without
/// waiting for the others. With set_epoch it goes on with the batches of the next epoch instead.
class StepBatches {
 public:
  /// `first`: the epoch of `input`, by plan_epoch(). `revise`: changes each later one before its
  /// batches are used. All but `revise` and the numbers of `input` must outlive this.
  StepBatches(const BatchingPolicy& policy,
              PolicyInput input,
              const EpochPlan& first,
              std::function<void(EpochPlan&)> revise = {});

  /// [rank] The samples, or parts of them, of the next step.
  /// Raises InputError: a rank has no batch in an epoch that the step begins.
  [[nodiscard]] std::vector<std::vector<Piece>> next();

 private:
  /// Where a rank is: the next of its batches in one of the epochs.
  struct Place {
    std::size_t epoch = 0;
    std::size_t batch = 0;
  };

  [[nodiscard]] const EpochPlan& epoch(std::size_t number) const {
    return number == 0 ? first_ : later_[number - 1];
  }
  void plan_next();
  /// Empties the later epochs that all ranks have left.
  void forget_old_epochs();

  const BatchingPolicy& policy_;
  PolicyInput input_;
  std::function<void(EpochPlan&)> revise_;
  const EpochPlan& first_;
  std::vector<EpochPlan> later_;  ///< From the second epoch on.
  std::size_t forgotten_ = 0;     ///< So many of them are empty.
  std::vector<Place> places_;     ///< [rank]
};

}  // namespace stepsim
