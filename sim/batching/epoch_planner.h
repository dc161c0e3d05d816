#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/batching/policy.h"

namespace stepsim {

/// What ranks with fewer batches than others do at the end of an epoch.
enum class UnevenRanks {
  Repeat,  ///< They start their own batches again, as StepBatches does: no sample is lost.
  Drop,    ///< The others leave their last batches out: no sample is repeated for this.
  Idle     ///< Their batches are empty then: no sample is lost or repeated.
};

/// What a policy plans by and with, beside the data.
struct PlannerOptions {
  SamplerSpec sampler;
  int ranks = 1;
  StepCost step_cost;  ///< Empty: the policy plans by padded tokens, or needs no cost.
  double shape_seconds = 0;
  UnevenRanks uneven = UnevenRanks::Repeat;
};

/// One rank's steps of an epoch, one after another.
struct RankEpoch {
  std::vector<std::int64_t> offsets;         ///< [step + 1] Where its samples begin in `samples`.
  std::vector<std::int64_t> samples;         ///< Ids, in batch order.
  std::vector<std::int64_t> starts;          ///< The token where each part of a sample starts, …
  std::vector<std::int64_t> lengths;         ///< … and its tokens; both empty: samples are whole.
  std::vector<std::int64_t> padded_lengths;  ///< [step]
  std::vector<std::int64_t> useful_tokens;   ///< [step]
  std::vector<double> loss_scales;           ///< [step] See loss_scale().
  std::vector<double> all_units;  ///< [step] All ranks' samples or tokens; 0: not weighted.
};

/// The batches of one epoch, the same number for every rank.
class PlannedEpoch {
 public:
  /// `epoch`: [rank] at least one batch each. `lengths`: [sample].
  PlannedEpoch(const BatchingPolicy& policy,
               std::span<const std::int64_t> lengths,
               EpochPlan epoch,
               UnevenRanks uneven);

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// [rank] The batches that the policy formed for each rank.
  [[nodiscard]] std::vector<std::int64_t> batches_by_rank() const;
  [[nodiscard]] RankEpoch rank(int rank) const;
  /// What a rank visits in all steps, one after another: a second account of rank(), for a check.
  [[nodiscard]] std::vector<Piece> visits(int rank) const;
  /// The samples, in ascending order, of which the epoch has something that no rank has visited in
  /// the first `steps` steps.
  [[nodiscard]] std::vector<std::int64_t> left_after(std::int64_t steps) const;
  /// 16 hexadecimal digits over the batches of all ranks: whoever planned the same has the same.
  [[nodiscard]] std::string check_value() const;

 private:
  [[nodiscard]] const std::vector<std::int64_t>& batch(std::size_t rank, std::int64_t step) const {
    static const std::vector<std::int64_t> kNone;
    const auto& own = epoch_.batches[rank];
    const bool ends = uneven_ == UnevenRanks::Idle && step >= std::ssize(own);
    return ends ? kNone : own[static_cast<std::size_t>(step) % own.size()];
  }

  const BatchingPolicy* policy_;
  std::span<const std::int64_t> lengths_;
  EpochPlan epoch_;
  UnevenRanks uneven_;
  std::int64_t steps_ = 0;
};

/// Plans the epochs of a data set as a training loop asks for them. All ranks that plan the same
/// data alike get the same epochs, so that none has to tell the others.
class EpochPlanner {
 public:
  /// `lengths`: [sample] tokens. Raises InputError: there are no samples or too many, a length is
  /// outside 1 .. kMaxSampleLength, there are more ranks than samples, or the policy plays a file.
  EpochPlanner(BatchingPolicy policy, std::vector<std::int64_t> lengths, PlannerOptions options);

  /// Raises InputError: the policy cannot plan this, or a rank gets no batch. The result refers to
  /// this planner.
  [[nodiscard]] PlannedEpoch epoch(int number) const;
  [[nodiscard]] const BatchingPolicy& policy() const { return policy_; }
  [[nodiscard]] const std::vector<std::int64_t>& lengths() const { return lengths_; }

 private:
  BatchingPolicy policy_;
  std::vector<std::int64_t> drawn_;    ///< [sample] As given.
  std::vector<std::int64_t> lengths_;  ///< [sample] As they run: a varlen call cuts them.
  PlannerOptions options_;
};

}  // namespace stepsim
