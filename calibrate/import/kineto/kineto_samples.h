#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "calibrate/samples/sample_log.h"

namespace stepsim {

/// What a profile can take from traces: how long collectives took without the wait.
struct KinetoSamples {
  std::vector<ImportedCollective> collectives;  ///< One for each collective, ranks and nodes.
  std::vector<std::string> groups;    ///< "all_reduce of 2 ranks on 1 node: 15 times, 5 sizes".
  std::vector<std::string> left_out;  ///< Which collectives were not taken, and why.
  std::string device;                 ///< The name that the traces give it.
};

/// Raises InputError that says why there are no samples, when there are none, and why steps go into
/// no profile, if `no_steps` says so.
void require_samples(const KinetoSamples& samples,
                     std::span<const KinetoTrace> traces,
                     const std::string& no_steps);

/// Takes the collectives that the traces of all their ranks hold. `nodes` is the number of the
/// run's nodes; absent means 1.
///
/// Raises InputError when `nodes` is absent although there are more ranks than devices on a host.
[[nodiscard]] KinetoSamples kineto_samples(std::span<const KinetoTrace> traces,
                                           const KinetoMatches& matches,
                                           std::optional<int> nodes);

}  // namespace stepsim
