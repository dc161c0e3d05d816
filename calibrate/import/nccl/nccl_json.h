#pragma once

#include <string>
#include <string_view>

#include "calibrate/import/nccl/nccl_log.h"

namespace stepsim {

/// True when the text begins like the file that nccl-tests writes with -J.
[[nodiscard]] bool is_nccl_json(std::string_view text);

/// Reads that file (versions 2 and 3). Environment, process ids and arguments but the program's
/// name are not taken over. Raises InputError: cut off or of another form.
///
/// The list of devices has one entry a process: ranks = processes * threads * GPUs.
[[nodiscard]] NcclLog read_nccl_json(const std::string& text, const std::string& file);

}  // namespace stepsim
