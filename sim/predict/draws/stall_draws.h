#pragma once

#include <string>
#include <vector>

#include "costmodel/records/profile.h"
#include "sim/predict/draws/error_draws.h"

namespace stepsim {

/// What rare stalls add to the steps of a run. Those that come by the clock are as frequent as
/// steps are long. As they are what other programs happened to do, they are counted as if 100 more
/// steps had been recorded without any; how many there are is drawn, of the record and of the run.
/// (Chosen on the two-rank records of tests/live: tests/live/CROSS.md.)
class StallDraws {
 public:
  /// `step_ms`: the mean step without stalls. `steps`: that the run's mean is of.
  StallDraws(const StallNoise& stalls, double step_ms, int steps);

  [[nodiscard]] bool any() const { return mean_ms_ > 0; }
  [[nodiscard]] double mean_ms() const { return mean_ms_; }
  /// How many a step; at most one.
  [[nodiscard]] double per_step() const { return per_step_; }
  [[nodiscard]] double longest_ms() const { return lengths_ms_.back(); }
  /// Returns one draw of what they add to the mean step of a policy, in milliseconds.
  [[nodiscard]] double drawn_ms(const std::string& policy, ErrorDraws& errors) const;
  /// Adds them to steps, which they hold up evenly.
  void add_to(std::vector<double>& step_ms) const;

 private:
  std::vector<double> lengths_ms_;
  std::vector<double> rates_;  ///< [stall] A step.
  double per_step_ = 0;
  double mean_ms_ = 0;
  double by_clock_ms_ = 0;  ///< Of mean_ms_.
  double recorded_sd_ = 0;  ///< Of by_clock_ms_, relative: how few were recorded,
  double run_sd_ = 0;       ///< and how few the run has.
};

}  // namespace stepsim
