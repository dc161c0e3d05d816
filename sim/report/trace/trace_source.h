#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/parallel/step.h"
#include "sim/predict/run/run.h"
#include "sim/report/trace/trace_rows.h"

namespace stepsim {

/// What one rank's batches of a step hold.
struct TraceBatch {
  std::int64_t useful_tokens = 0;
  std::int64_t padded_tokens = 0;
  double peak_memory_mib = 0;
};

/// What the traces of a run are made of.
struct TraceSource {
  const Run& run;
  std::string policy;
  std::vector<int> ranks;           ///< The ranks that are shown, ascending.
  std::vector<std::string> labels;  ///< Names of the rows' work.
};

/// One step of a run.
struct TraceStep {
  int step = 0;
  const StepTimeline& timeline;
  const TraceRows& rows;
  const std::vector<TraceBatch>& batches;  ///< [rank]
};

/// "text" as JSON writes it, quotes included; bytes that are not UTF-8 are replaced.
[[nodiscard]] std::string json_text(const std::string& text);

}  // namespace stepsim
