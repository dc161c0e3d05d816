#pragma once

#include <span>
#include <string>

#include "sim/scenario/toml_tree.h"

namespace stepsim {

/// Raises InputError at the first key or table that no scenario has, naming the nearest known one.
/// Types and values are checked later, so that a misspelt key never shows as a missing one.
void check_keys(const TomlDocument& document);

/// Applies "key=value" texts to the document, in order: `ddp.bucket_cap=50 MiB`,
/// `policy.NAME.batch_size=16`, `data.lengths={constant=128}`.
///
/// A value that reads as one TOML value is that value, else it is text. Tables that are missing on
/// the way are made. A policy is found by its name, the longest that fits (names may hold dots).
/// Raises InputError: no '=', an empty key, an unknown policy, a key below something that is no
/// table.
void apply_overrides(TomlDocument& document, std::span<const std::string> overrides);

}  // namespace stepsim
