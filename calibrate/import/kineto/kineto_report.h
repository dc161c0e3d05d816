#pragma once

#include <span>
#include <string>

#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Writes tables for a terminal: ranks and steps, collectives by kind and size, DDP's buckets, the
/// parts of a step, compute by class, then warnings.
[[nodiscard]] std::string kineto_report(std::span<const KinetoTrace> traces,
                                        const KinetoMatches& matches,
                                        const Screen& screen = {});

/// Writes {"format", "ranks": [{"rank", "steps", "collectives", "compute", "warnings", …}],
/// "matches", "unmatched", "warnings"}. Times are in microseconds; starts count from the first step
/// of all ranks.
[[nodiscard]] Json kineto_json(std::span<const KinetoTrace> traces, const KinetoMatches& matches);

}  // namespace stepsim
