#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/import/recorded/recorded_run.h"
#include "costmodel/compute/shape_cost.h"

namespace stepsim {

/// What the records tell of shapes that a rank met for the first time.
struct RecordedShapes {
  std::vector<ShapeCost> costs;       ///< Empty: none, or nobody can tell.
  std::vector<std::string> notes;     ///< What was found, with its interval.
  std::vector<std::string> warnings;  ///< Why nothing can be told.
};

/// Fits what a first meeting adds to forward and backward.
///
/// A pass is a sum of the features kMeetingFeatures and of a cost for each first meeting, by least
/// absolute deviations relative to the pass without it; the features are multiplied by how slow the
/// machine was around the step, as batches that met nothing tell. Where a backward holds the wait
/// for other ranks, the step's last end of a backward is taken to be that of the rank which the fit
/// itself says is last. Mechanisms are added one by one, the one that helps most first, while the
/// Bayesian information criterion says that they help; one that is not three standard deviations
/// (of fits to resampled steps) above 0 is dropped.
[[nodiscard]] RecordedShapes fit_recorded_shapes(std::span<const RecordedRun> runs);

/// The runs without the steps in which some rank met a shape that costs something. Where fewer
/// than kFewestWarmSteps would be left, all stay, and `warnings` says so.
[[nodiscard]] std::vector<RecordedRun> without_meetings(std::vector<RecordedRun> runs,
                                                        std::span<const ShapeCost> costs,
                                                        std::vector<std::string>& warnings);
inline constexpr std::size_t kFewestWarmSteps = 20;

}  // namespace stepsim
