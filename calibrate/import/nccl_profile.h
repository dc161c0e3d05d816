#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/import/imported_profile.h"
#include "calibrate/import/nccl/nccl_tests.h"

namespace stepsim {

/// Why logs were refused: "FILE: error: refused: REASON" for each reason.
[[nodiscard]] std::vector<std::string> refusals_of(std::span<const NcclImport> imports);

/// Makes a profile of logs of nccl-tests. `device` is what the user calls the GPUs; empty: as the
/// logs do. Raises InputError: a log was refused; two are of one collective, ranks and nodes; and
/// as fit_profile().
[[nodiscard]] ImportedProfile nccl_profile(std::span<const NcclImport> imports,
                                           const std::string& device,
                                           const ProfileRequest& asked);

}  // namespace stepsim
