#pragma once

#include <span>
#include <string>

#include "calibrate/import/nccl/nccl_inspector.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// What NCCL Inspector recorded: each kind and size with its transfer, each rank with its waiting.
[[nodiscard]] std::string inspector_report(const InspectorLog& log,
                                           std::span<const InspectorMatch> matches,
                                           const Screen& screen);

/// Returns every collective by itself, as JSON of the form "stepsim-nccl-inspector/1".
[[nodiscard]] Json inspector_json(const InspectorLog& log, std::span<const InspectorMatch> matches);

}  // namespace stepsim
