#pragma once

#include <string>
#include <vector>

#include "sim/predict/memory_curve.h"
#include "sim/predict/prediction.h"
#include "sim/predict/run/job.h"

namespace stepsim {

/// What memory is held for.
struct MemoryPart {
  std::string name;  ///< "optimizer", "activations", "logits", …
  double mib = 0;
};

/// What the rank that needs most memory holds at the peak of its largest batch.
struct MemoryParts {
  int step = 0;
  int rank = 0;
  std::vector<MemoryPart> parts;  ///< The largest first; none of nothing.
};

/// Those of the peak of a curve.
[[nodiscard]] MemoryParts memory_parts(const MemoryCurve& curve);

/// A sharded model has those of the prediction's memory curve, any other those of PeakMemory: the
/// states, buckets, activations and logits of one batch. Raises InputError as predict() does.
[[nodiscard]] MemoryParts memory_parts(const Job& job, const Prediction& prediction);

}  // namespace stepsim
