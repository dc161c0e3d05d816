#pragma once

#include <string>
#include <string_view>

#include "calibrate/import/nccl/nccl_log.h"

namespace stepsim {

/// Whether the text begins like the file that nccl-tests writes with -J.
[[nodiscard]] bool is_nccl_json(std::string_view text);

/// Reads that file (versions 2 and 3). The environment, process ids and the arguments after the
/// program's name are left out. Raises InputError when the file is cut off or of another form.
///
/// The list of devices has one entry for each process, so that ranks = processes * threads * GPUs.
[[nodiscard]] NcclLog read_nccl_json(const std::string& text, const std::string& file);

}  // namespace stepsim
