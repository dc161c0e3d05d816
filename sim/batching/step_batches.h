#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "sim/batching/policy.h"

namespace stepsim {

/// The batches of a run's steps, one step after another. They are taken from epochs, which are
/// planned as the steps reach them.
///
/// Step t executes batch t modulo the rank's number of batches, as the token-skew lab does: a rank
/// that has used up its epoch starts the same batches again, without a new shuffle and without
/// waiting for the others. With set_epoch it goes on with the batches of the next epoch instead.
class StepBatches {
 public:
  /// Plans the first epoch. `policy` and the data of `input` must outlive this. `revise`: changes
  /// each epoch before its batches are used, in the order of the epochs.
  /// Raises InputError: more ranks than samples, or a rank without a batch (drop_last).
  StepBatches(const BatchingPolicy& policy,
              PolicyInput input,
              std::function<void(EpochPlan&)> revise = {});

  /// [rank] The samples, or parts of them, of the next step.
  /// Raises InputError: a rank has no batch in an epoch that the step begins.
  [[nodiscard]] std::vector<std::vector<Piece>> next();

  [[nodiscard]] const EpochPlan& first_epoch() const { return epochs_.front(); }
  /// Hands the first epoch out, after the last step.
  [[nodiscard]] EpochPlan take_first_epoch() && { return std::move(epochs_.front()); }

 private:
  /// Where a rank is: the next of its batches in one of the epochs.
  struct Place {
    std::size_t epoch = 0;
    std::size_t batch = 0;
  };

  void plan_epoch();
  /// Empties the epochs that all ranks have left, but for the first.
  void forget_old_epochs();

  const BatchingPolicy& policy_;
  PolicyInput input_;
  std::function<void(EpochPlan&)> revise_;
  std::vector<EpochPlan> epochs_;
  std::size_t forgotten_ = 0;  ///< Epochs that are empty: those from 1 up to this one.
  std::vector<Place> places_;  ///< [rank]
};

}  // namespace stepsim
