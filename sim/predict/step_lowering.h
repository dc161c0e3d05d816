#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/network/interference.h"
#include "sim/parallel/lockstep.h"
#include "sim/parallel/step_schedule.h"
#include "sim/parallel/step_work.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// A systematic error that all ops of one class and pass share (or all collectives).
struct ErrorGroup {
  std::string name;
  double relative_sd = 0;
};

/// One batch with its prices, on a rank of ordinary speed.
struct PricedBatch {
  double collate = 0;                ///< Seconds.
  std::vector<double> seconds;       ///< [work of the model] seconds of one op.
  std::vector<std::int32_t> blocks;  ///< [work of the model] thread blocks of one op.
};

/// How much a result leans on costs outside what was measured.
struct ExtrapolationNote {
  std::string op;
  double larger = 1;   ///< Times the largest measured size; 1 = none is larger.
  double smaller = 1;  ///< The smallest measured size over the size; 1 = none is smaller.
  bool unseen_shape = false;

  void outside(const Cost& cost) {
    double& worst = cost.smaller ? smaller : larger;
    worst = std::max(worst, cost.extrapolation);
  }
};

/// Factors on top of the prices, which stand for their errors.
struct CostFactors {
  std::vector<double> group;                 ///< [group]; empty: all are 1.
  double collective = 1;                     ///< Applies to all collectives.
  std::vector<double> collective_sizes;      ///< [octave] And to those of 2^octave bytes; or none.
  double host = 1;                           ///< Applies to all that the host thread spends.
  double new_shapes = 1;                     ///< Applies to what new shapes cost; 0: all are known.
  std::optional<Interference> interference;  ///< Replaces the scenario's interference.

  /// The factor on a collective of so many bytes; between octaves those of the two are mixed.
  [[nodiscard]] double of_collective(double bytes) const;
};

/// Slowness of one rank in one step.
struct RankFactors {
  double compute = 1;      ///< Applies to all its work: a slow rank, jitter.
  double load = 1;         ///< Applies to forward and backward only: more work than was priced.
  PassStall forward = {};  ///< New shapes.
  PassStall backward = {};
};

/// Returns the ops of a scenario's step, with the layers that it computes again in the backward.
[[nodiscard]] StepOps step_ops(const Scenario& scenario);

/// A micro-batch as work on the device: the ops of the model in launch order with their prices, and
/// what DDP itself adds to them. Everything that knows what a step costs takes it from here: the
/// recurrence folds this work, the programs of the engine launch it, planners sum it.
///
/// Layers repeat, so ops that differ in no more than their name are one piece of work, with one
/// price. Work is numbered: first the model's, then DDP's.
class StepLowering {
 public:
  /// `empty_block_seconds`: the time of one empty block of varlen attention's grid, where `costs`
  /// does not price it. Both references must outlive the lowering.
  StepLowering(const Scenario& scenario, const CostModel& costs, double empty_block_seconds = 0);
  /// A copy of one with all that is priced in it, for a scenario that has the same ops.
  StepLowering(const StepLowering& priced, const Scenario& scenario);

  /// Tokens that are loaded and embedded: the padded ones, with varlen attention the useful ones.
  [[nodiscard]] std::int64_t input_tokens(const BatchShape& batch) const;

  /// Returns the prices of a batch. Raises InputError: the profile has no cost for an op, or
  /// refuses it.
  [[nodiscard]] PricedBatch price(const BatchShape& batch);
  /// Forward and backward of a batch, and what DDP does beside them, in seconds.
  [[nodiscard]] double compute_seconds(const PricedBatch& batch) const;
  /// Returns those seconds by the error that they share: [group].
  [[nodiscard]] std::vector<double> seconds_by_group(const PricedBatch& batch) const;
  /// Forward and backward of a batch without anything of DDP's: the sum of its kernels, or of their
  /// launches where the host is slower. The result is not kept.
  [[nodiscard]] double pass_seconds(const BatchShape& batch);

  /// The time to build a batch on the host.
  [[nodiscard]] Duration collate(const PricedBatch& batch,
                                 const CostFactors& factors,
                                 double compute_factor) const;
  /// The copy of a batch to the device, which takes no time where the host has none to make.
  [[nodiscard]] Kernel copy_input(const BatchShape& shape, const CostFactors& factors) const;
  /// The kernels of one micro-batch.
  [[nodiscard]] MicroBatchWork micro_batch(const PricedBatch& batch,
                                           const BatchShape& shape,
                                           const CostFactors& factors,
                                           RankFactors rank) const;
  /// A micro-batch without prices, its kernels labelled with the numbers of their work: what
  /// schedule_of() reads.
  [[nodiscard]] MicroBatchWork numbered(const BatchShape& shape) const;
  /// A plain step of one rank, folded into the spans of the recurrence. The schedule names work by
  /// the numbers of numbered() and ddp_work(). Raises InputError: it takes longer than the clock
  /// can hold.
  [[nodiscard]] RankStep fold(const PricedBatch& batch,
                              const StepSchedule& schedule,
                              const CostFactors& factors,
                              RankFactors rank) const;
  /// A step of the rank of that number, folded into the stretches of a schedule, with a batch, its
  /// shape and what slows it for each micro-batch. Raises InputError as above.
  [[nodiscard]] LockstepWork fold(std::span<const PricedBatch* const> batches,
                                  std::span<const BatchShape> shapes,
                                  const LockstepSchedule& schedule,
                                  int number,
                                  const CostFactors& factors,
                                  std::span<const RankFactors> ranks) const;

  /// Returns the number of a piece of DDP's own work: a copy, a zeroing or an optimizer over so
  /// many elements, `parts` times.
  [[nodiscard]] std::int32_t ddp_work(OpClass op_class,
                                      std::int64_t elements,
                                      std::int64_t parts = 1);
  /// Prices all of DDP's work of that class that has a number by now.
  void price_ddp_work(OpClass op_class);
  /// Returns one kernel of DDP's own work, on a rank with these factors.
  [[nodiscard]] Kernel ddp_kernel(OpClass op_class,
                                  std::int64_t elements,
                                  const CostFactors& factors,
                                  double compute_factor,
                                  std::int64_t parts = 1);

  /// Returns a kernel of each piece of work: [work]. Those without a price take no time.
  [[nodiscard]] std::vector<Kernel> kernels(const PricedBatch& batch,
                                            const CostFactors& factors,
                                            RankFactors rank) const;

  /// Whether a piece of work is the model's; else it is DDP's own.
  [[nodiscard]] std::int32_t model_work() const { return static_cast<std::int32_t>(model_work_); }
  [[nodiscard]] bool is_of_model(std::int32_t work) const {
    return static_cast<std::size_t>(work) < model_work_;
  }
  /// The error group of a piece of work.
  [[nodiscard]] std::size_t group_of(std::int32_t work) const {
    return work_[static_cast<std::size_t>(work)].group.value_or(0);
  }
  [[nodiscard]] double seconds_of(const PricedBatch& batch, std::int32_t work) const;
  /// What a collective takes from a piece of work.
  [[nodiscard]] Bound bound_of(std::int32_t work) const {
    return work_[static_cast<std::size_t>(work)].bound;
  }
  /// The thread blocks of a piece of work; 0: not known.
  [[nodiscard]] std::int32_t blocks_of(const PricedBatch& batch, std::int32_t work) const {
    return is_of_model(work) ? batch.blocks[static_cast<std::size_t>(work)] : 0;
  }
  /// Forward and backward of the model alone, one op after another, in seconds.
  [[nodiscard]] std::pair<double, double> model_seconds(const PricedBatch& batch) const;
  /// [op of the backward] Seconds from the beginning of the backward to the end of the op, without
  /// anything of DDP's.
  [[nodiscard]] std::vector<double> backward_ends(const PricedBatch& batch) const;
  /// The ops of the model in a micro-batch.
  [[nodiscard]] std::size_t model_ops() const;
  [[nodiscard]] std::size_t collate_group() const { return collate_group_; }
  /// What a launch takes on the host.
  [[nodiscard]] double launch_seconds() const { return launch_seconds_; }
  /// The relative standard deviation of the host's times.
  [[nodiscard]] double host_error() const;

  [[nodiscard]] std::size_t ops_per_micro_batch() const { return ops_.size(); }
  [[nodiscard]] const std::vector<ErrorGroup>& groups() const { return groups_; }
  /// Costs outside the measured range, the worst factor of each op class.
  [[nodiscard]] std::vector<ExtrapolationNote> notes() const;

 protected:
  [[nodiscard]] const Scenario& scenario() const { return *scenario_; }
  [[nodiscard]] bool host_is_device() const { return costs_->host_is_device(); }
  ExtrapolationNote& note(const std::string& name);

 private:
  /// One op of the lists in launch order.
  struct LoweredOp {
    std::int32_t work = 0;
    std::int32_t label = -1;  ///< TrainedModel::labels; -1: DDP's own.
    bool forward = false;
  };
  /// A piece of work of the model, or of DDP.
  struct Work {
    Op op;
    std::optional<std::size_t> group;  ///< Empty until it is priced.
    double seconds = 0;                ///< DDP's own: its price does not depend on the batch.
    std::int64_t parts = 1;            ///< DDP's own: it is the op so many times.
    Bound bound = Bound::Memory;
  };

  void add_model_ops(const std::vector<Op>& ops, bool forward, std::vector<Op>& kinds);
  [[nodiscard]] double priced(const Op& op, const BatchShape& batch, std::size_t& group);
  void price_ddp(Work& work);
  [[nodiscard]] PricedBatch price_ops(const BatchShape& batch, bool with_ddp);
  /// The host is busy for so long with every kernel.
  [[nodiscard]] Duration launch(const CostFactors& factors) const;
  [[nodiscard]] Kernel kernel(std::int32_t work,
                              const PricedBatch& batch,
                              Duration time,
                              Duration launch) const;
  /// Returns the time of each piece of work: [work].
  [[nodiscard]] std::vector<Duration> times(const PricedBatch& batch,
                                            const CostFactors& factors,
                                            RankFactors rank) const;

  const Scenario* scenario_;
  const CostModel* costs_;
  double empty_block_seconds_;
  bool has_copies_ = false;  ///< DDP's, of gradients into buckets.
  double launch_seconds_ = 0;
  std::vector<LoweredOp> ops_;  ///< Forward, then backward.
  std::vector<Work> work_;
  std::size_t model_work_ = 0;  ///< How many of `work_` are the model's; they come first.
  std::map<std::tuple<OpClass, std::int64_t, std::int64_t>, std::int32_t> ddp_work_;
  std::size_t collate_group_ = 0;
  std::vector<ErrorGroup> groups_;
  std::map<std::string, ExtrapolationNote> notes_;
};

}  // namespace stepsim
