#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "costmodel/base/quantile.h"
#include "sim/predict/prediction.h"

namespace stepsim {

[[nodiscard]] double mean(std::span<const double> values);
/// Population standard deviation (ddof = 0).
[[nodiscard]] double population_std(std::span<const double> values);
/// The time that a share `q`, 0 to 1, of the steps does not exceed: what quantile() tends to when
/// all steps are repeated more and more often, so that runs, passes and draws of different number
/// compare. Where exactly that share does not exceed a time, it is 1 - `q` of the way to the next
/// one, the median half of it. 0 for no steps.
[[nodiscard]] double step_quantile(std::vector<double> step_ms, double q);

/// How long a step takes: from the last rank's start to the last rank's end.
[[nodiscard]] Duration step_time(const StepTimeline& timeline);

/// Returns how long one rank spent in each part of a step.
[[nodiscard]] RankTimes rank_times(const RankTimeline& rank);

/// Step times from rows of ranks, by the rule of step_time().
class GlobalSteps {
 public:
  void add(int repeat, int step, double start_ms, double step_ms);
  /// [repeat][step] milliseconds.
  [[nodiscard]] std::map<int, std::map<int, double>> by_repeat() const;

 private:
  struct Ends {
    double start = 0;
    double end = 0;
  };
  std::map<std::pair<int, int>, Ends> ends_;
};

/// [step] milliseconds of the steps from `first_step` on, of the run without noise.
[[nodiscard]] std::map<int, double> step_times(std::span<const RankStepResult> rows,
                                               int first_step);

/// Sums over steady steps, of one run or of many.
struct StepSums {
  std::vector<double> step_ms;   ///< [step] not a sum.
  std::vector<RankTimes> ranks;  ///< [rank]
  double std_over_ranks = 0;     ///< Milliseconds.
  double communication_ms = 0;
  double hidden_ms = 0;  ///< Communication before the last backward ends.
};

/// Adds up the times of steady steps, of one run or of many, into the means of a prediction.
class StepTimeTally {
 public:
  void add(const StepTimeline& timeline);
  void add(const StepSums& sums);
  /// Multiplies all times that were added.
  void scale(double factor);
  /// Makes room for the times of so many steps, so that adding them moves none.
  void reserve(std::size_t steps) { sums_.step_ms.reserve(steps); }
  [[nodiscard]] const StepSums& sums() const { return sums_; }
  /// Returns the time of every step added, in order.
  [[nodiscard]] const std::vector<double>& step_ms() const { return sums_.step_ms; }
  /// Sets the times of `ranks` and all times of `summary` but those of StepTimeSummary.
  void set_means(std::vector<RankMeans>& ranks, PredictionSummary& summary) const;

 private:
  StepSums sums_;
};

/// Adds up the samples, tokens and memory of steps into the means of a prediction.
class WorkTally {
 public:
  explicit WorkTally(int steady_steps) : steady_steps_(steady_steps) {}

  /// The rows of one step, one a rank. A step that is not steady counts for the peak of the memory
  /// alone.
  void add(std::span<const RankStepResult> step, bool steady);
  /// Sets the samples, tokens and memory of `summary` and the tokens of `ranks`.
  void set_means(std::vector<RankMeans>& ranks, PredictionSummary& summary) const;

 private:
  double steady_steps_;
  double samples_ = 0;
  double peak_memory_mib_ = 0;
  double token_spread_ = 0;
  double padded_tokens_std_ = 0;
  double memory_std_ = 0;
  std::vector<RankMeans> sums_;  ///< [rank]
};

}  // namespace stepsim
