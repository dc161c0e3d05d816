#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "costmodel/compute/shape_stalls.h"
#include "costmodel/network/collective_pricer.h"
#include "costmodel/records/profile.h"
#include "sim/ddp/ddp_program.h"
#include "sim/engine/engine.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/counterfactual.h"
#include "sim/predict/draws/jitter.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_pricer.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// What a run knows of a micro-batch. Many are alike.
struct RunBatch {
  BatchShape shape;          ///< What it is priced by.
  std::int64_t samples = 0;  ///< The shape counts the rows that they are packed into.
  const PricedBatch* prices = nullptr;
};

/// One policy of a scenario, planned and priced: all that stays the same from one noise draw to the
/// next.
class PricedRun {
 public:
  /// Raises InputError: a cost that the profile lacks or refuses.
  PricedRun(const Scenario& scenario,
            const BatchingPolicy& policy,
            const Profile& profile,
            std::optional<Counterfactual> counterfactual = {});
  PricedRun(const PricedRun&) = delete;
  PricedRun& operator=(const PricedRun&) = delete;

  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] const Profile& profile() const { return profile_; }
  [[nodiscard]] const PlannedData& planned() const { return planned_; }
  [[nodiscard]] StepPricer& model() const { return *model_; }
  [[nodiscard]] const DdpModel& ddp_model() const { return ddp_model_; }
  /// The micro-batches of all steps and ranks.
  [[nodiscard]] std::size_t batches() const { return batches_.size(); }
  /// One of them, numbered by step, then rank, then micro-batch.
  [[nodiscard]] const RunBatch& batch(std::size_t number) const {
    return different_[batches_[number]];
  }
  /// Each of them once, where several are alike.
  [[nodiscard]] const std::vector<RunBatch>& different_batches() const { return different_; }
  /// Whether the profile's interference holds, since the scenario states none.
  [[nodiscard]] bool takes_measured_interference() const {
    return profile_.interference && !scenario_.interference_given &&
           scenario_.interference.active();
  }
  /// What builds something for a new shape: the scenario's mechanisms, else the profile's.
  [[nodiscard]] const std::vector<ShapeCost>& shape_costs() const { return shape_costs_; }
  /// [as batch()] Empty where new shapes cost nothing.
  [[nodiscard]] const std::vector<ShapeStall>& shape_stalls() const { return shape_stalls_; }
  /// The shape that caches know a batch by: of varlen attention its tokens alone.
  [[nodiscard]] BatchShape cached_shape(const BatchShape& batch) const;
  /// The cached shapes of the first epoch, by step, rank and micro-batch; a rank that has fewer
  /// batches than others has none without samples at its end. Empty for a played plan.
  [[nodiscard]] std::vector<BatchShape> epoch_shapes() const;
  /// What the kernels of a micro-batch take, one after another: the mean over ranks and steps.
  [[nodiscard]] double kernel_seconds() const;
  /// Whether the max-plus recurrence plays this run. It does where the programs of the steps hold
  /// nothing else than it knows; see schedule_of().
  [[nodiscard]] bool plain() const { return !plain_steps_.empty(); }

  /// One step in the form that the recurrence plays.
  struct PlainStep {
    StepSchedule schedule;
    std::vector<double> all_reduce;  ///< [bucket] seconds.
  };
  /// The first step and all others; empty unless the run is plain().
  [[nodiscard]] const std::vector<PlainStep>& plain_steps() const { return plain_steps_; }
  [[nodiscard]] const PricedBatch& priced_batch(std::size_t number) const {
    return *batch(number).prices;
  }
  /// How much more or less work a micro-batch is than was priced.
  [[nodiscard]] double batch_factor(std::size_t number) const { return batch_factor_[number]; }
  /// How much slower a rank is than others.
  [[nodiscard]] double rank_factor(int rank) const {
    return rank_factor_[static_cast<std::size_t>(rank)];
  }
  /// Cores that the ranks of a node share; 0: no limit.
  [[nodiscard]] double cores() const { return cores_; }
  [[nodiscard]] const Jitter& jitter() const { return jitter_; }
  /// Quantiles of a single all-reduce over its mean.
  [[nodiscard]] const std::vector<double>& all_reduce_spread() const { return all_reduce_spread_; }
  /// Whether the host thread computes.
  [[nodiscard]] bool host_is_device() const { return host_.is_device; }
  [[nodiscard]] bool differs_by(Change change) const {
    return counterfactual_ && counterfactual_->change == change;
  }

 private:
  friend class StepSimulator;

  /// Plans the steps and keeps what the run needs of their batches, without prices.
  [[nodiscard]] PlannedData plan();
  [[nodiscard]] BatchShape shape_of(const MicroBatch& batch) const;
  [[nodiscard]] EngineRules engine_rules(const CostFactors& factors) const;
  [[nodiscard]] IterationSequence iterations() const;
  /// Describes what all ranks have in common in a step, without their work, and advances
  /// `iterations` by one step.
  [[nodiscard]] DdpStep step_without_work(int number, IterationSequence& iterations) const;
  void find_plain_steps();
  void add_skew();
  void add_shape_stalls();
  void balance();

  Scenario scenario_;
  Profile profile_;
  std::optional<Counterfactual> counterfactual_;
  BatchingPolicy policy_;
  std::vector<RunBatch> different_;
  std::vector<std::uint32_t> batches_;  ///< Which of the different ones each micro-batch is.
  PlannedData planned_;
  std::unique_ptr<CostModel> costs_;
  std::unique_ptr<CollectivePricer> pricer_;
  std::unique_ptr<StepPricer> model_;
  DdpModel ddp_model_;
  DdpHost host_;
  std::vector<PlainStep> plain_steps_;
  std::vector<std::int64_t> owned_;   ///< [rank] elements of the optimizer's state.
  std::vector<double> batch_factor_;  ///< [as batches_]
  std::vector<double> rank_factor_;   ///< [rank]
  std::vector<ShapeCost> shape_costs_;
  std::vector<ShapeStall> shape_stalls_;  ///< [as batches_]
  double cores_ = 0;
  Jitter jitter_;
  std::vector<double> all_reduce_spread_;
};

}  // namespace stepsim
