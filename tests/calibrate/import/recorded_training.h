#pragma once

#include <cstdint>

#include "calibrate/import/recorded/recorded_run.h"

namespace stepsim::test {

/// What a record holds that tells a backward from waiting.
enum class Recorded { Buckets, ProcessorTimes, Nothing };

/// A training whose every time is known.
struct MadeTraining {
  int ranks = 2;
  int steps = 40;
  int micro_batches = 1;
  Recorded recorded = Recorded::ProcessorTimes;
  double noise = 0;  ///< Uniform within this fraction, of a rank's forward and backward.
  double operations_per_byte = 8;  ///< Where the first bucket is launched.
  double first_reduce = 3e-4;      ///< Seconds of the first bucket's all-reduce.
  double second_reduce = 5e-4;
  std::int64_t samples = 0;       ///< Of every batch; 0: 4 to 16.
  std::int64_t round_length = 1;  ///< Batches are padded to a multiple of this.
  /// Seconds that a rank sleeps before forward and before backward, each, when it meets a pair of
  /// samples and length for the first time.
  double new_plan = 0;
  /// Seconds that its processor is busy before the forward for a length that no rank had met.
  double new_graph = 0;
};

inline constexpr int kMadeWarmup = 2;

/// Seconds of a pass of one micro-batch.
[[nodiscard]] double made_forward(const BatchShape& batch);
[[nodiscard]] double made_backward(const BatchShape& batch);

/// Its record and plan: 2 buckets, steps that start together and end with the last all-reduce; the
/// warm-up steps take ten times as long.
[[nodiscard]] RecordedRun made_run(const MadeTraining& training);

}  // namespace stepsim::test
