#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/scenario/setting.h"

namespace stepsim {

/// The names that `--set parallel=NAME` and `--over parallel=NAME,NAME` take in place of keys:
/// "ddp", "zero1", "zero2", "fsdp2", "hsdp".
[[nodiscard]] std::span<const std::string> sharding_names();

/// Returns the keys that a name stands for. Raises InputError for another name, with the nearest.
[[nodiscard]] std::vector<Setting> sharding_settings(const std::string& name);

}  // namespace stepsim
