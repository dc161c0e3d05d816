#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "costmodel/network/collective_pricer.h"
#include "costmodel/records/profile.h"
#include "sim/ddp/ddp_program.h"
#include "sim/engine/engine.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/counterfactual.h"
#include "sim/predict/loader.h"
#include "sim/predict/noise.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_pricer.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

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
  [[nodiscard]] const PlannedPolicy& planned() const { return planned_; }
  [[nodiscard]] const Plan& plan() const { return planned_.plan; }
  [[nodiscard]] StepPricer& model() const { return *model_; }
  /// What a batch of the plan costs by.
  [[nodiscard]] BatchShape shape_of(const MicroBatch& batch) const;
  /// Neither options nor noise need more than the max-plus recurrence.
  [[nodiscard]] bool plain() const { return plain_; }

 private:
  friend class StepSimulator;

  [[nodiscard]] double rank_factor(int rank) const {
    return rank_factor_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool differs_by(Change change) const {
    return counterfactual_ && counterfactual_->change == change;
  }
  void add_skew();
  void balance();

  Scenario scenario_;
  Profile profile_;
  std::optional<Counterfactual> counterfactual_;
  PlannedPolicy planned_;
  std::unique_ptr<CostModel> costs_;
  std::unique_ptr<CollectivePricer> pricer_;
  std::unique_ptr<StepPricer> model_;
  BucketCosts initial_;
  BucketCosts rebuilt_;
  DdpBuckets buckets_;
  DdpModel ddp_model_;
  SyncOptions sync_;
  std::vector<std::int64_t> owned_;          ///< [rank] elements of the optimizer's state.
  std::vector<const PricedBatch*> batches_;  ///< By step, rank, micro-batch, as the plan.
  std::vector<double> batch_factor_;         ///< The same: more or less work than priced.
  std::vector<double> rank_factor_;          ///< [rank] slow ranks
  int cores_ = 0;                            ///< That the ranks of a node share; 0: none need to.
  double jitter_ = 0;
  std::vector<double> jitter_quantiles_;   ///< Empty: normal, `jitter_`.
  double jitter_correlation_ = 0;          ///< Between the ranks of a step.
  std::vector<double> all_reduce_spread_;  ///< Quantiles of a single all-reduce over its mean.
  bool plain_ = true;
};

/// Plays the steps of a run one after another, with noise or without.
class StepSimulator {
 public:
  /// `factors`: errors of the costs; `common`: of all of them; `noise`: null for none.
  /// `events`: plays plain steps by events, too. `record_spans`: notes when streams work and wait;
  /// of plain steps, which are then played by the closed form, only when they wait.
  StepSimulator(const PricedRun& run,
                CostFactors factors,
                double common,
                NoiseDraws* noise,
                bool events,
                bool record_spans = false);

  [[nodiscard]] StepTimeline next();
  /// The same with all ops, names of collectives and the host's calls, for traces; with
  /// `record_spans`.
  [[nodiscard]] StepTimeline next_with_ops();

 private:
  [[nodiscard]] StepInput plain_input();
  [[nodiscard]] StepTimeline play_plain();
  [[nodiscard]] StepTimeline play_program();
  void name_buckets(std::size_t step, StepTimeline& timeline) const;
  void add_plain_ops(std::size_t step,
                     std::size_t rank,
                     const RankClock& clock,
                     StepTimeline& timeline);
  [[nodiscard]] RankWork rank_work(int rank);
  /// Slowness of one rank in this step.
  [[nodiscard]] double draw_rank_factor(int rank);
  [[nodiscard]] double draw_jitter();
  /// The same, drawn before where cores are shared.
  [[nodiscard]] double step_factor(int rank);
  /// Draws all ranks' slowness of this step and what sharing cores adds to it.
  void share_cores();
  void add_op_jitter(std::vector<Kernel>& kernels);

  const PricedRun& run_;
  CostFactors factors_;
  double common_;
  NoiseDraws* noise_;
  bool events_;
  bool record_spans_;
  int step_ = 0;
  double common_score_ = 0;          ///< What the ranks' jitter has in common in this step.
  std::vector<double> drawn_;        ///< [rank] slowness in this step, where cores are shared.
  std::vector<double> core_factor_;  ///< [rank] forward and backward by sharing cores.
  std::vector<RankClock> clocks_;
  std::vector<double> lasting_speed_;  ///< [rank]
  std::optional<Engine> engine_;
  IterationSequence iterations_;
  DdpPrices prices_;
  Loader loader_;
};

/// Whether a scenario needs nothing beyond one in-order all-reduce a bucket and constant rates.
[[nodiscard]] bool is_plain(const Scenario& scenario);

}  // namespace stepsim
