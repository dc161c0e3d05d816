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

/// Records hold milliseconds, samples seconds.
inline constexpr double kMilli = 1e-3;

/// The part of the slowest times that a mean leaves out: hiccups of the machine.
inline constexpr double kLeftOut = 0.01;

/// What an all-reduce of this size takes by a table, however far outside of it.
[[nodiscard]] double seconds_alone(const CollectiveCost& table, std::int64_t bytes);

/// A step and a rank of a plan.
using StepRank = std::pair<int, int>;

/// One all-reduce of a recorded step, over all ranks.
struct RecordedReduce {
  int step = 0;  ///< Counts in order of recording.
  std::int64_t bytes = 0;
  double seconds = 0;         ///< Its part of the time when two of them share the links.
  double beside_compute = 0;  ///< The part of `seconds` in which any rank's backward computed.
};

/// Adds the all-reduces of a run's steady steps, which last from their last launch to their last
/// end. Those that queued behind another one are left out. With gloo two may share the links; then
/// each counts for its part of the time.
void add_reduces(const RunRecord& record, std::vector<RecordedReduce>& reduces);

/// Makes one sample for each size, in order of size.
[[nodiscard]] std::vector<CollectiveSample> samples_of(std::span<const RecordedReduce> reduces,
                                                       int ranks);

/// How training changes the times of all-reduces that were measured alone.
struct TrainingReduces {
  double factor = 1;    ///< The times alone are multiplied by this.
  double transfer = 0;  ///< The extra time beside compute, as a fraction (see Interference).
  std::optional<std::pair<double, double>> transfer_interval;  ///< The 90 % interval.
  double error = 0;  ///< The mean |error| of the recorded sizes' times.
};

/// Fits seconds - beside + beside / (1 + transfer) = factor x the table's seconds to the sums of
/// each size. The factor makes the total right; the transfer (0 .. 2) makes each size right as far
/// as it can. The interval comes from fits to eighths of the steps.
[[nodiscard]] TrainingReduces fit_training_reduces(std::span<const RecordedReduce> reduces,
                                                   const CollectiveCost& alone);

/// Multiplies a table by the factor. The table's random error becomes that of its sizes from half
/// the smallest recorded one up, each interpolated between its neighbours, combined with the fit's.
void apply(const TrainingReduces& training,
           std::span<const RecordedReduce> reduces,
           CollectiveCost& table);

}  // namespace stepsim
