#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "calibrate/import/recorded/recorded_run.h"
#include "costmodel/compute/shape_cost.h"

namespace stepsim {

/// One rank's recorded step, and what it met for the first time.
struct MetRank {
  std::vector<double> features;  ///< [kMeetingFeatures], over the micro-batches together.
  std::vector<double> meetings;  ///< [mechanism] First meetings of shapes.
  double forward = 0;            ///< Seconds of wall time, as all times here.
  /// The backward without waiting for other ranks; 0 where the record does not tell it.
  double backward = 0;
  const StepRecord* row = nullptr;  ///< Of the record.
  double forward_end = 0;           ///< On the clock of the record's host.
  double backward_end = 0;
};

/// A recorded step of all ranks, the steady ones only.
struct MetStep {
  std::size_t run = 0;  ///< The place of its record among the runs.
  int repeat = 0;
  int step = 0;
  std::vector<MetRank> ranks;
};

/// The features that a pass goes with beside new shapes; see pass_feature().
inline constexpr const char* kMeetingFeatures[] = {"1", "samples", "tokens", "tokens*length"};

/// Every way in which a cache may tell shapes apart, the finest first: keys of one rank, then keys
/// that all ranks share.
[[nodiscard]] std::vector<ShapeCost> possible_mechanisms(int ranks);

/// Plays the caches of those mechanisms through the records in the order of their steps. Records
/// whose times overlap are of one process, which trained several policies by turns; each other one
/// begins with empty caches. Returns the steady steps in that order.
[[nodiscard]] std::vector<MetStep> met_steps(std::span<const RecordedRun> runs,
                                             std::span<const ShapeCost> mechanisms);

}  // namespace stepsim
