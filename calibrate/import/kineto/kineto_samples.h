#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// What a profile can hold of traces: how long collectives took without the wait.
struct KinetoSamples {
  /// Of a samples file: for each collective, ranks and nodes one line of what is known of it, then
  /// one line for each time it ran.
  std::vector<std::string> lines;
  std::vector<std::string> groups;    ///< "all_reduce of 2 ranks on 1 node: 15 times, 5 sizes".
  std::vector<std::string> left_out;  ///< Which collectives are in no line, and why.
  std::string device;                 ///< As the traces name it.
};

/// Takes the collectives that the traces of all their ranks hold. `nodes`: of the run; empty: 1.
///
/// Raises InputError: `nodes` is empty and there are more ranks than devices on a host; no
/// collective can be taken.
[[nodiscard]] KinetoSamples kineto_samples(std::span<const KinetoTrace> traces,
                                           const KinetoMatches& matches,
                                           std::optional<int> nodes);

}  // namespace stepsim
