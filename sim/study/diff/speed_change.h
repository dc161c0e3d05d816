#pragma once

#include <optional>
#include <utility>

#include "sim/study/diff/compared_steps.h"
#include "sim/study/diff/effect.h"

namespace stepsim {

/// What AFTER does more than BEFORE in a second, in useful tokens of all ranks, whatever the
/// batches of the two are. It is what a change of the batches is made for, where no step of one
/// side has its like on the other.
struct SpeedChange {
  double before = 0;  ///< Useful tokens per second.
  double after = 0;
  Effect log_ratio;  ///< The logarithm of after over before, and its error; `before` is 1.

  /// after / before - 1
  [[nodiscard]] double gain() const { return after / before - 1; }
  /// The interval of the gain that is wrong with this probability.
  [[nodiscard]] std::pair<double, double> interval(double alarm) const;
  [[nodiscard]] bool is_real(double alarm) const { return log_ratio.is_real(alarm); }
};

/// A side's speed is its useful tokens over its time, a ratio of means. What each step adds to its
/// logarithm, (tokens - speed x time) / mean tokens (the ratio's linear form, Cochran 1977,
/// Sampling Techniques, 6.4), has the errors that StepComparison gives to steps that depend on one
/// another, the machine's drift included, which is in parts of the speed.
///
/// Args:
///     compared: Of whose `all` there are at least kFewestCompared on each side.
/// Returns: Nothing where a side has no useful tokens.
[[nodiscard]] std::optional<SpeedChange> speed_change(const ComparedSteps& compared);

}  // namespace stepsim
