#pragma once

#include "calibrate/measure/measure.h"
#include "calibrate/samples/sample_log.h"
#include "costmodel/io/json_file.h"

namespace stepsim {

/// What the backend says of itself, and how fast it is.
struct Probe {
  JsonValue description;
  StepEstimate estimate;
  JsonValue host;  ///< Costs of the host, null where it computes itself.
};

/// Empty on launched ranks above 0. Starts the ranks once, times two steps and asks for the
/// description.
[[nodiscard]] Probe probe(const MeasureRequest& request, const BackendFactory& factory);

/// What cannot be measured with so few ranks, by name.
[[nodiscard]] std::vector<std::string> not_measured(int ranks);

/// First line of a samples file.
[[nodiscard]] Json samples_header(const MeasureRequest& request,
                                  const MeasurePlan& plan,
                                  const Probe& probe);

/// Refuses to mix what was measured for another request or on another device: InputError.
void require_same_request(const SampleFile& file,
                          const MeasureRequest& request,
                          const Json& header);

}  // namespace stepsim
