#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stepsim {

/// The names that `--set parallel=NAME` and `--over parallel=NAME,NAME` take in place of keys:
/// "ddp", "zero1", "zero2", "fsdp2", "hsdp", "fsdp1", "zero".
[[nodiscard]] std::span<const std::string> sharding_names();

/// Returns the keys that a name stands for, with the texts that --set takes. Raises InputError for
/// another name, with the nearest.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> sharding_settings(
    const std::string& name);

}  // namespace stepsim
