#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/scenario/setting.h"
#include "sim/scenario/toml_tree.h"

namespace stepsim {

/// Applies "key=value" texts to the document, in order: `ddp.bucket_cap=50 MiB`,
/// `policy.NAME.batch_size=16`, `data.lengths={constant=128}`; returns what they say.
/// `parallel=hsdp` stands for several keys, see sharding_settings().
///
/// Tables that are missing on the way are made. A policy is found by its name, the longest that
/// fits, since names may hold dots and '='. `option`: what gave the texts, for messages: "--set".
/// Raises InputError: no '=', an empty key, an unknown policy, a key below something that is no
/// table.
std::vector<Setting> apply_texts(TomlDocument& document,
                                 std::span<const std::string> texts,
                                 const std::string& option);
/// Applies settings as apply_texts() does.
void apply_settings(TomlDocument& document, const StudySettings& study);

/// Takes out of the file what a setting replaces: counts of ranks by a placement, caps by a rule of
/// the buckets that knows none, keys of other kinds by a kind of parallelism.
void drop_replaced_keys(TomlDocument& document);

}  // namespace stepsim
