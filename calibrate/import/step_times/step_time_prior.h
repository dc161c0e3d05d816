#pragma once

#include <cstddef>
#include <vector>

namespace stepsim {

/// What is believed of a coefficient before any row is seen: normal, in the coefficient's own unit.
struct StepTimePrior {
  const char* name;
  double mean = 0;
  double deviation = 1;
};

/// The coefficients' places in a fit's vector. Behind kShared come factors on compute that was not
/// timed alone. Those of bandwidths, latencies, two nodes and several ranks are logarithms.
// Places in a vector are constants, and not the values of a type.
// NOLINTBEGIN(readability-identifier-naming)
enum StepTimePlace : std::size_t {
  kSeveral,
  kPerDoubling,
  kForward,
  kOptimizer,
  kIntra,
  kIntraHalf,
  kInter,
  kInterHalf,
  kTwoNodes,
  kNodes,
  kCrowding,
  kInterference,
  kShared
};
// NOLINTEND(readability-identifier-naming)

/// [StepTimePlace] The shares are those of a backward with twice the work of its forward;
/// bandwidths get their means from the table. A ring's step costs as much as 100 kB more would, two
/// nodes are about a third slower than three, bandwidth falls by 5 % with each doubling of the
/// nodes and by 3 % with each doubling of a node's ranks: values for sockets, chosen with the
/// published steps of three models in sight (tests/calibrate/import/STEP_TIMES.md).
[[nodiscard]] const std::vector<StepTimePrior>& step_time_priors();

}  // namespace stepsim
