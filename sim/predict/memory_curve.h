#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sim/parallel/step.h"

namespace stepsim {

class Run;
struct Scenario;

/// What is held from some event of a step on.
struct MemoryPoint {
  double ms = 0;      ///< From the rank's start of the step, when its device gets there.
  std::string event;  ///< "gather of layer3"
  int micro_batch = 0;
  bool backward = false;
  std::vector<double> mib;  ///< [part]

  [[nodiscard]] double total_mib() const;
};

/// What the rank that needs most memory holds over its step.
struct MemoryCurve {
  int step = 0;
  int rank = 0;
  std::vector<std::string> parts;  ///< What it is held for, activations and all.
  std::vector<MemoryPoint> points;
  int peak = 0;  ///< The first point of the most bytes.
};

/// Whether the kind of parallelism says what is held over a step.
[[nodiscard]] bool has_memory_curve(const Scenario& scenario);

/// The step, rank and micro-batch whose peak is the largest of the steady steps.
struct LargestBatch {
  int step = 0;
  int rank = 0;
  std::size_t number = 0;  ///< Run::batch()
};
[[nodiscard]] LargestBatch largest_batch(const Run& run);

/// The curve of that step; None where the kind of parallelism has none. All micro-batches count as
/// large as the largest one. `timeline`: of that step, with spans.
[[nodiscard]] std::optional<MemoryCurve> memory_curve(const Run& run,
                                                      const LargestBatch& largest,
                                                      const StepTimeline& timeline);

}  // namespace stepsim
