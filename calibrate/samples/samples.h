#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/samples/measure_plan.h"
#include "calibrate/samples/overlap_sample.h"
#include "costmodel/io/json_value.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// An op at one batch shape: the median over all repetitions, passes and ranks, with its spread.
struct OpSample {
  Op op;  ///< Class, pass, rows, sizes, dtype (name and completes are left out).
  BatchShape batch;
  double seconds = 0;
  double p20 = 0;
  double p80 = 0;
  int repetitions = 0;
  double per_step = 1;  ///< How often one step runs it.
};

struct CollectiveSample {
  std::string kind = "all_reduce";
  int ranks = 0;
  int nodes = 1;
  std::int64_t bytes = 0;
  /// Measured here: mean over repetitions and passes without the slowest 1 %: between busy ranks
  /// the times have two or three levels, and the mean of many steps holds the mean of them, not the
  /// middle one. Imported: the faster of out-of-place and in-place, median over rows of this size.
  double seconds = 0;
  /// Noise as a fraction. Measured here: half of p20 to p80; imported: |out-of-place - in-place|,
  /// or of one kind only as measured here.
  double noise = 0;
  int repetitions = 0;
  std::vector<double> all_seconds;  ///< Every repetition; empty when imported.
  bool pipelined = false;           ///< One of calls back to back, and no call by itself.
};

/// The same small step again and again, to see the machine drift.
struct SentinelSample {
  double seconds = 0;
  double at_seconds = 0;  ///< Since the start of the measurement, interruptions left out.
};

/// Times of one and the same step, every repetition of every pass and rank: jitter.
struct JitterSample {
  BatchShape batch;
  std::vector<double> step_seconds;
};

/// What a samples file holds, with repetitions already combined. (Named so because `Samples` is a
/// counted type.)
struct SampleSet {
  JsonValue header;  ///< As written: device, versions, date, command, and the measuring plan.
  MeasurePlan plan;  ///< As by default when the file holds imports only.
  std::vector<OpSample> ops;  ///< By op, then batch shape, both in order of first appearance.
  std::vector<CollectiveSample> collectives;  ///< By collective, ranks, nodes and size.
  JsonValue imports;  ///< An array: what is known of each imported log; null without any.
  std::vector<OverlapSample> overlaps;
  std::vector<SentinelSample> sentinels;
  std::vector<JitterSample> jitter;
};

/// "format": "stepsim-samples/1". A truncated last line is dropped with a warning; other damage
/// raises InputError with file:line.
///
/// The ops of one batch shape are scaled by a common factor so that their sum is the median of the
/// whole step: medians of parts leave out the hiccups that every step has somewhere.
[[nodiscard]] SampleSet read_samples(const std::string& path, std::vector<std::string>* warnings);

}  // namespace stepsim
