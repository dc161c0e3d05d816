#pragma once

#include "calibrate/measure/measure.h"
#include "calibrate/samples/sample_log.h"
#include "costmodel/io/json_file.h"

namespace stepsim {

/// What the backend says about itself, and how fast it is.
struct Probe {
  JsonValue description;
  StepEstimate estimate;
  JsonValue host;  ///< What the host's part costs; null where the host computes itself.
};

/// Starts the ranks once, times two steps and an all-reduce, and asks for the description. On
/// launched ranks above 0 the result is empty.
[[nodiscard]] Probe probe(const MeasureRequest& request, const BackendFactory& factory);

/// Names what cannot be measured with so few ranks.
[[nodiscard]] std::vector<std::string> not_measured(int ranks);

/// The first line of a samples file.
[[nodiscard]] Json samples_header(const MeasureRequest& request,
                                  const MeasurePlan& plan,
                                  const Probe& probe);

/// Raises InputError when the file was measured for another request or on another device, so that
/// nothing gets mixed.
void require_same_request(const SampleFile& file,
                          const MeasureRequest& request,
                          const Json& header);

}  // namespace stepsim
