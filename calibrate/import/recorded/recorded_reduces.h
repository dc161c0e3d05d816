#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "calibrate/samples/samples.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// One all-reduce of a recorded step, over all ranks.
struct RecordedReduce {
  int step = 0;  ///< In order of recording.
  std::int64_t bytes = 0;
  double seconds = 0;         ///< What counts for it where two share the links.
  double beside_compute = 0;  ///< Of those seconds: while any rank's backward was computing.
};

/// Adds the all-reduces of a run's steady steps, from their last launch to their last end. Those
/// that queued behind another are left out; with gloo, where two share the links, each counts for
/// its part of the time.
void add_reduces(const RunRecord& record, std::vector<RecordedReduce>& reduces);

/// One sample a size, in order of size.
[[nodiscard]] std::vector<CollectiveSample> samples_of(std::span<const RecordedReduce> reduces,
                                                       int ranks);

/// What training makes of all-reduces that were measured alone.
struct TrainingReduces {
  double factor = 1;    ///< Of the times alone.
  double transfer = 0;  ///< Extra time beside compute, as a fraction: see Interference.
  std::optional<std::pair<double, double>> transfer_interval;  ///< 90 %.
  double error = 0;  ///< Mean |error| of the recorded sizes' times.
};

/// Fits seconds - beside + beside / (1 + transfer) = factor x the table's seconds to the sums of
/// each size: the factor makes all of them together right, the transfer (0 .. 2) each of them as
/// far as it can. The interval is that of fits to eighths of the steps.
[[nodiscard]] TrainingReduces fit_training_reduces(std::span<const RecordedReduce> reduces,
                                                   const CollectiveCost& alone);

/// Multiplies a table by the factor. Its random error becomes that of sizes from half the smallest
/// recorded one up, each interpolated between its neighbours, and that of the fit.
void apply(const TrainingReduces& training,
           std::span<const RecordedReduce> reduces,
           CollectiveCost& table);

}  // namespace stepsim
