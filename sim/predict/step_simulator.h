#pragma once

#include <optional>
#include <vector>

#include "sim/parallel/lockstep.h"
#include "sim/predict/draws/noise.h"
#include "sim/predict/loader.h"
#include "sim/predict/run/run.h"

namespace stepsim {

/// Plays the steps of a run one after another. Steps of plain runs are played by the recurrence,
/// without noise: a DrawPlayer has that. Others are played in lockstep where they may be, and the
/// rest by the engine.
class StepSimulator {
 public:
  /// `factors`: errors of the costs; `common`: a factor on all of them; `noise`: null for none.
  /// `engine`: the engine plays plain runs as well, which changes nothing.
  explicit StepSimulator(Run& run,
                         CostFactors factors = {},
                         double common = 1,
                         NoiseDraws* noise = nullptr,
                         bool engine = false);

  /// The next step. `record_spans`: the engine plays it, whatever plays the others, and the
  /// timeline holds all work and all waits. Raises InputError: the simulated clock passes
  /// kTimeLimit.
  [[nodiscard]] StepTimeline next(bool record_spans = false);

 private:
  [[nodiscard]] StepTimeline play_plain();
  [[nodiscard]] StepTimeline play_program(bool record_spans);
  [[nodiscard]] StepTimeline play_template(const StepWork& step);
  [[nodiscard]] StepTemplate& template_of(const StepWork& step);
  void forget_warm_up();
  /// None: the engine has to play this step.
  [[nodiscard]] std::optional<StepTimeline> play_lockstep_schedule();
  /// The schedule of this step; null: its program has none.
  [[nodiscard]] const LockstepSchedule* lockstep_of(StepWork step);
  [[nodiscard]] std::vector<Duration> drawn_transfers(const std::vector<Collective>& collectives);
  [[nodiscard]] RankWork rank_work(int rank);
  [[nodiscard]] MicroBatchWork micro_batch(int rank, int number, double slowness);
  /// Adds to a micro-batch what its loader takes, or when the workers have it.
  void load(int rank, int number, MicroBatchWork& batch);
  /// Gives a rank's work to the program of a step.
  void set_work(int rank, StepTemplate& of_step);
  /// Draws whether a rank stalls in this step, and for how long.
  [[nodiscard]] Duration drawn_stall();
  /// Draws the slowness of one rank in this step.
  [[nodiscard]] double draw_slowness(int rank);
  /// The slowness of one rank in this step: drawn now, or by share_cores().
  [[nodiscard]] double slowness_of(int rank);
  /// Draws the slowness of all ranks in this step, and computes what sharing cores adds to it.
  void share_cores();
  /// What slows this micro-batch of a rank.
  [[nodiscard]] RankFactors factors_of(std::size_t batch, int rank, double slowness) const;
  /// What the loader takes for a micro-batch of a rank in this step.
  [[nodiscard]] Duration load_of(int rank, int micro_batch) const;
  /// Adds what the loader takes for a rank's batches, or when its workers have them.
  void load(int rank, LockstepWork& work);
  /// Tells the loader when the batches of the step were taken.
  void fetch(const ExecutionTrace& played);
  void add_op_jitter(std::vector<Kernel>& kernels);

  Run& run_;
  CostFactors factors_;
  double common_;
  NoiseDraws* noise_;
  bool engine_plays_;
  int step_ = 0;
  double common_score_ = 0;          ///< What the jitter of the ranks has in common in this step.
  std::vector<double> drawn_;        ///< [rank] slowness in this step, where cores are shared.
  std::vector<double> core_factor_;  ///< [rank] on forward and backward, by sharing cores.
  std::vector<RankClock> clocks_;
  std::vector<double> lasting_speed_;  ///< [rank]
  std::optional<Engine> engine_;
  IterationSequence iterations_;
  StepPrices prices_;
  bool in_lockstep_;
  std::vector<KnownTemplate> templates_;
  std::vector<KnownSchedule> known_;  ///< With this draw's times.
  bool known_steady_ = false;         ///< Whether they are of steps after the warm-up.
  Loader loader_;
  std::vector<SimTime> ready_;  ///< Of a step that is not played yet: [rank][micro-batch].
};

}  // namespace stepsim
