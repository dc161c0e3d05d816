#pragma once

#include <span>
#include <string>

#include "calibrate/import/nccl/nccl_tests.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Writes one line for each table, with warnings below, for a terminal.
[[nodiscard]] std::string nccl_report(std::span<const NcclImport> imports,
                                      const Screen& screen = {});

/// Writes the main table of one file: {"format", "file", "verdict", "op", "ranks", "nodes", "rows":
/// [{"bytes", "out_of_place_us", "in_place_us"}], "warnings", …}. With several runs it holds the
/// rows of all, each with its "run", and no ranks.
[[nodiscard]] Json nccl_json(const NcclImport& import);

/// Writes nccl_json() of the only file, or {"format", "logs": […]} for several.
[[nodiscard]] Json nccl_json(std::span<const NcclImport> imports);

/// All reasons of at least this weight, "code: message", each once.
[[nodiscard]] std::vector<std::string> reasons_of(const NcclImport& import, NcclVerdict weight);

}  // namespace stepsim
