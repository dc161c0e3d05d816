#pragma once

#include <string>
#include <string_view>

#include "calibrate/import/nccl/nccl_log.h"

namespace stepsim {

/// Reads the text that nccl-tests (every version since NCCL 1) and rccl-tests print, or their CSV:
/// with labels of launchers, NCCL's own lines between and inside rows, missing or partial headers.
/// Nothing is judged here: see check_table().
///
/// Lines that belong to no table are passed over. `file` names it in the result.
[[nodiscard]] NcclLog read_nccl_text(std::string_view text, const std::string& file);

}  // namespace stepsim
