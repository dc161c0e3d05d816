#pragma once

#include <string>
#include <vector>

#include "costmodel/batch_shape.h"
#include "costmodel/json_file.h"
#include "costmodel/transformer.h"

namespace stepsim {

/// One measurement: the median over repetitions, with its spread.
struct OpSample {
  Op op;  ///< Class, pass, sizes, dtype (name is left out).
  BatchShape batch;
  double seconds = 0;
  double p20 = 0;
  double p80 = 0;
  int repetitions = 0;
};

struct CollectiveSample {
  std::string kind = "all_reduce";
  int ranks = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
  double p20 = 0;
  double p80 = 0;
  int repetitions = 0;
};

/// The same small step again and again, to see the machine drift.
struct SentinelSample {
  double seconds = 0;
  double at_seconds = 0;  ///< Since the start of the measurement.
};

/// A whole step against the sum of its ops, per repetition: jitter.
struct JitterSample {
  BatchShape batch;
  std::vector<double> step_seconds;
};

struct Samples {
  Json header;  ///< Device, versions, date, command, ranks, model, sentinel shape.
  std::vector<OpSample> ops;
  std::vector<CollectiveSample> collectives;
  std::vector<SentinelSample> sentinels;
  std::vector<JitterSample> jitter;
};

/// "format": "stepsim-samples/1". A truncated last line is dropped with a warning; other damage
/// raises InputError with file:line.
[[nodiscard]] Samples read_samples(const std::string& path, std::vector<std::string>* warnings);

}  // namespace stepsim
