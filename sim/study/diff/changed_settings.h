#pragma once

#include <string>
#include <vector>

#include "costmodel/records/run_record.h"

namespace stepsim {

/// What the headers of two records differ in, beside times and files, as "ddp.bucket_cap_bytes
/// 26214400 -> 1048576": policy, device, backend, host, cores, versions, DDP's settings, autocast,
/// optimizer, loader. Empty where nothing does.
[[nodiscard]] std::vector<std::string> changed_settings(const RunRecord& before,
                                                        const RunRecord& after);

}  // namespace stepsim
