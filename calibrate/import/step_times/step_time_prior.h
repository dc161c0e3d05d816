#pragma once

#include <cstddef>
#include <vector>

namespace stepsim {

/// What is believed of a coefficient before any row is seen: normal, in the coefficient's own unit.
struct StepTimePrior {
  /// A residual in standard deviations, whose square is what a value costs.
  [[nodiscard]] double residual(double value) const;
  /// The standard deviation of a normal belief that is as sure about the value.
  [[nodiscard]] double deviation_at(double value) const;

  const char* name;
  double mean = 0;
  double deviation = 1;
  /// Far from the mean it is believed as Student's distribution of two degrees of freedom has it:
  /// rows that say otherwise win.
  bool heavy_tails = false;
};

/// The coefficients' places in a fit's vector. Where a batch was not timed alone, two on the
/// compute of all such batches come behind kShared, kHost and kSample, and then a factor for each
/// of them from kUntimed on. Those of bandwidths, latencies, two nodes, several ranks and compute
/// are logarithms.
// Places in a vector are constants, and not the values of a type.
// NOLINTBEGIN(readability-identifier-naming)
enum StepTimePlace : std::size_t {
  kSeveral,
  kPerDoubling,
  kPerDoublingOfNode,
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
  kShared,
  kHost = kShared,
  kSample,
  kUntimed
};
// NOLINTEND(readability-identifier-naming)

/// [StepTimePlace] The shares are those of a backward with twice the work of its forward;
/// bandwidths get their means from the table. A ring's step costs as much as 100 kB more would, two
/// nodes are about a third slower than three, bandwidth falls by 5 % with each doubling of the
/// nodes and by 3 % with each doubling of a node's ranks: values for sockets, chosen with the
/// published steps of three models on one cluster in sight (tests/calibrate/import/STEP_TIMES.md),
/// and so unsure that others need not be like it.
[[nodiscard]] const std::vector<StepTimePrior>& step_time_priors();

}  // namespace stepsim
