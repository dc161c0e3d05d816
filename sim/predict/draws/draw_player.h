#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/predict/draws/folded_steps.h"
#include "sim/predict/metrics.h"

namespace stepsim {

/// What a run's costs are multiplied with.
struct DrawnCosts {
  CostFactors factors;
  double common = 1;  ///< A factor on all of them.
};

/// One draw: runs under different costs and the same jitter. All draws have as many runs.
using Draw = std::vector<DrawnCosts>;

/// Plays all steps of a plain run under several draws at once: a lane is one run of one draw, and
/// whatever is done is done to all lanes in a loop that the compiler turns into vectors. Time is
/// not rounded to nanoseconds here; else the lanes do what closed_form_step() does.
class DrawPlayer {
 public:
  /// `first`, `others`: the first step and those that follow. `steps`: the numbers of those that
  /// are played, the first step among them. `number`: that of the first of `draws`, of which the
  /// jitter is drawn. All references must outlive the player.
  DrawPlayer(const Run& run,
             const FoldedSteps& first,
             const FoldedSteps& others,
             std::span<const int> steps,
             int number,
             std::span<const Draw> draws);

  /// Plays the steps. Raises InputError: the simulated clock passes kTimeLimit.
  void play(const std::function<void(int step)>& on_step);

  /// Hands out the sums over the steady steps of the first run of each draw, over all draws.
  [[nodiscard]] StepSums take_sums() { return std::move(sums_); }
  /// Returns the longest steady step in the first run of each draw: [draw].
  [[nodiscard]] const std::vector<double>& longest_ms() const { return longest_ms_; }
  /// Returns the mean steady step of one run of each draw: [draw].
  [[nodiscard]] std::vector<double> mean_ms(std::size_t run) const;

 private:
  using Lanes = std::vector<double>;

  /// A rank's work in a step, from its beginning to each of these marks: the batch is there, the
  /// forward ends, each bucket is launched, the backward ends. From clocks of host and device it
  /// comes to the later of device + Row::device and host + Row::host.
  struct Row {
    Lanes device;    ///< [mark][lane]
    Lanes host;      ///< [mark][lane]
    Lanes launches;  ///< [lane] What the host takes for all of it.
  };

  /// The times of the suffixes of one kind of batch before slowness and load: [suffix][lane].
  [[nodiscard]] const double* model_times(const FoldedSteps& folded, std::uint32_t kind);
  [[nodiscard]] Lanes ddp_times(const FoldedSteps& folded) const;
  void draw_slowness();
  void share_cores(int step);
  void play_step(int step, const FoldedSteps& folded, const Lanes& ddp, const Lanes& transfer);
  void compute(int step, std::size_t rank, const FoldedSteps& folded, const Lanes& ddp);
  void compute_by_row(const Row& row, std::size_t rank, std::size_t buckets, bool steady);
  /// Moves the clocks of a rank by its work in a step, and calls `mark` with each mark's number.
  void play_work(int step,
                 std::size_t rank,
                 const FoldedSteps& folded,
                 const Lanes& ddp,
                 double* host,
                 double* device,
                 const std::function<void(std::size_t mark)>& mark);
  /// The row of the work that a rank has in this step.
  [[nodiscard]] const Row& row_of(int step,
                                  std::size_t rank,
                                  const FoldedSteps& folded,
                                  const Lanes& ddp);
  void reduce(const FoldedSteps& folded, const Lanes& transfer, bool steady);
  void finish(int step, std::size_t rank, const FoldedSteps& folded, const Lanes& ddp);
  void end_step(bool steady);
  /// Moves the clocks of a rank by a span; `model` may be null where it has none.
  void advance(const FoldedSteps& folded,
               const FoldedSteps::FoldedSpan& span,
               std::uint32_t kind,
               const double* model,
               const double* ddp,
               const double* slowness,
               double* host,
               double* device);
  void advance_held_up(const FoldedSteps::FoldedSpan& span,
                       std::size_t batch,
                       const double* model,
                       const double* slowness,
                       double* host,
                       double* device);
  void add_times(std::size_t rank, double RankTimes::*time, const double* from, const double* to);

  const Run& run_;
  const FoldedSteps& first_;
  const FoldedSteps& others_;
  std::size_t ranks_;
  std::size_t draws_;
  std::size_t lanes_;
  std::vector<Lanes> group_;            ///< [group][lane]
  Lanes collate_;                       ///< [lane] The factor on building a batch.
  Lanes launch_;                        ///< [lane] Seconds of one launch.
  Lanes common_;                        ///< [lane]
  Lanes stall_;                         ///< [lane] The factor on what new shapes cost.
  std::vector<NoiseDraws> noise_;       ///< [draw] For the jitter of the ranks.
  std::vector<NoiseDraws> link_noise_;  ///< [draw] For the spread of the all-reduces.
  std::span<const Draw> drawn_;
  std::span<const int> steps_;
  std::size_t steady_steps_ = 0;
  /// Whether rows are made: a rank takes the same time whenever it has the same batch.
  bool repeats_ = false;
  bool device_alone_ = false;                 ///< While a row is made: no op waits for its launch.
  std::vector<std::uint32_t> class_of_rank_;  ///< Ranks of one class take the same time.
  Lanes host_;                                ///< [rank][lane] The clocks.
  Lanes device_;
  Lanes start_;        ///< [rank][draw] Where the step began.
  Lanes slowness_;     ///< [rank][lane] In this step.
  Lanes core_factor_;  ///< [rank][lane] Empty where no cores are shared.
  Lanes load_;         ///< [lane] Of the rank at hand.
  Lanes critical_;     ///< [lane] Scratch, as is work_.
  Lanes work_;
  Lanes before_;    ///< [draw] Scratch: the clock before a part of the step.
  Lanes launched_;  ///< [bucket][lane] The latest launch of the ranks.
  Lanes reduce_start_;
  Lanes reduce_end_;
  Lanes backward_end_;                        ///< [draw] Of the last rank.
  Lanes step_start_;                          ///< [lane] When the last rank started.
  Lanes step_ms_;                             ///< [lane] The last step.
  Lanes total_ms_;                            ///< [lane] Sum of the steady steps.
  const FoldedSteps* known_steps_ = nullptr;  ///< Whose kinds are known.
  std::unordered_map<std::uint32_t, Lanes> known_;
  std::unordered_map<std::uint64_t, Row> rows_;  ///< By class of rank and kind of batch.
  StepSums sums_;
  std::vector<double> longest_ms_;
};

}  // namespace stepsim
