#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "costmodel/network/collective_pricer.h"
#include "costmodel/records/profile.h"
#include "sim/engine/engine.h"
#include "sim/parallel/lockstep.h"
#include "sim/parallel/parallelism.h"
#include "sim/parallel/step_schedule.h"
#include "sim/parallel/step_template.h"
#include "sim/predict/run/planned_run.h"
#include "sim/predict/run/priced_batches.h"
#include "sim/predict/step_pricer.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// One step in the form that the recurrence plays.
struct PlainStep {
  StepSchedule schedule;
  std::vector<double> all_reduce;  ///< [bucket] seconds.
};

/// What all steps with these iterations play.
struct KnownSchedule {
  int number = 0;  ///< Of one of ParallelFacts::first_steps; that many: of those that follow.
  std::vector<Iteration> iterations;
  LockstepSchedule schedule;

  [[nodiscard]] bool is_of(int other, const std::vector<Iteration>& others) const {
    return number == other && iterations == others;
  }
};

/// What the engine plays in all steps with these iterations.
struct KnownTemplate {
  int number = 0;  ///< As of KnownSchedule.
  std::vector<Iteration> iterations;
  StepTemplate of_step;
};

/// The fourth stage of a run: how a step's gradients are reduced. It has the buckets, the schedules
/// of the steps and the prices of their collectives.
class ReducedStep {
 public:
  /// All references must outlive this. Raises InputError: a collective that the profile refuses.
  ReducedStep(const Scenario& scenario,
              const Profile& profile,
              const PlannedRun& planned,
              const PricedBatches& priced);
  ReducedStep(const ReducedStep&) = delete;
  ReducedStep& operator=(const ReducedStep&) = delete;

  [[nodiscard]] const ParallelFacts& facts() const { return facts_; }
  [[nodiscard]] const BucketLists& buckets() const { return parts_.buckets; }
  [[nodiscard]] const TrainedModel& model() const { return parts_.model; }
  [[nodiscard]] const StepHost& host() const { return host_; }
  /// Prices of the step's work. Further collectives are priced when they are met.
  [[nodiscard]] const StepPricer& pricer() const { return pricer_; }
  [[nodiscard]] StepPricer& pricer() { return pricer_; }
  /// [rank] Elements of the optimizer's state.
  [[nodiscard]] const std::vector<std::int64_t>& owned() const { return parts_.owned; }
  /// Quantiles of a single all-reduce over its mean.
  [[nodiscard]] const std::vector<double>& all_reduce_spread() const { return spread_; }
  /// Whether the max-plus recurrence plays the steps. It does where their programs hold nothing
  /// else than it knows; see schedule_of().
  [[nodiscard]] bool plain() const { return !plain_steps_.empty(); }
  /// Whether play_lockstep() may play the steps: their programs are alike, and nothing that changes
  /// rates or holds a host belongs to the run.
  [[nodiscard]] bool in_lockstep() const;
  /// Whether draws with noise may be played all at once in lockstep: under interference, too, where
  /// the engine plays the steps without events.
  [[nodiscard]] bool draws_in_lockstep();
  /// The first step and all others; empty unless plain().
  [[nodiscard]] const std::vector<PlainStep>& plain_steps() const { return plain_steps_; }

  [[nodiscard]] EngineRules engine_rules(const CostFactors& factors) const;
  [[nodiscard]] IterationSequence iterations() const;
  /// Describes what all ranks have in common in a step, without their work, and advances
  /// `iterations` by one step.
  [[nodiscard]] StepWork step_without_work(int number, IterationSequence& iterations) const;
  /// The program of a step with the work of its ranks.
  [[nodiscard]] StepProgram program(const StepPrices& prices, const StepWork& step) const;
  /// The program of a step without work, in which kernels have numbers of work in place of times.
  [[nodiscard]] StepProgram numbered_program(StepWork step,
                                             const CostFactors& factors,
                                             double common);
  /// Returns that program as one that can be given the work of steps.
  [[nodiscard]] StepTemplate step_template(StepWork step,
                                           const CostFactors& factors,
                                           double common);
  /// Whether the engine plays a step without events: see collective_order().
  [[nodiscard]] bool plays_in_order();
  /// Whether step_template() may stand for all steps with the same iterations, from the third on.
  [[nodiscard]] bool has_template() const {
    return facts_.alike && !plain() && !pricer_.copies_by_byte();
  }
  /// What a step without work plays in lockstep; null: its program has no schedule. It stays where
  /// it is. Other costs change its times alone: see times_of().
  [[nodiscard]] const KnownSchedule* schedule(const StepWork& step);

 private:
  [[nodiscard]] StepProgram program_of(StepWork step,
                                       const MicroBatchWork& work,
                                       const StepPrices& prices);
  void find_plain_steps();

  const Scenario& scenario_;
  const PlannedRun& planned_;
  CollectivePricer collectives_;
  StepPricer pricer_;
  ParallelFacts facts_;
  ParallelParts parts_;
  StepHost host_;
  std::vector<double> spread_;
  std::vector<PlainStep> plain_steps_;
  std::vector<KnownTemplate> templates_;
  std::deque<KnownSchedule> schedules_;  ///< Those that were met so far.
};

}  // namespace stepsim
