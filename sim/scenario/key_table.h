#pragma once

#include <string>
#include <vector>

#include "sim/scenario/key.h"
#include "sim/scenario/toml_tree.h"

namespace stepsim {

/// A table of the scenario file with all keys that it may hold.
struct KeyTable {
  std::string path;  ///< "ddp", "data.lengths.log_normal"; empty: the whole file.
  std::vector<Key> keys;
};

/// Every table of the file format.
[[nodiscard]] const std::vector<KeyTable>& key_tables();

/// The first stage of a run that depends on a key, "ddp.bucket_cap"; of one that no table has, such
/// as a policy's, the first of all.
[[nodiscard]] Stage first_stage_of(const std::string& key);

/// What a key's values are; None for one that no table has.
[[nodiscard]] Quantity quantity_of(const std::string& key);

/// Raises InputError at the first key or table that no scenario has, naming the nearest known one.
/// Types and values are checked later, so that a misspelt key never shows as a missing one.
void check_keys(const TomlDocument& document);

/// Reads the keys of one table, found by the reader's path, in the order of their rows. Those
/// without a function of their own are left to the caller. Raises InputError: a wrong value, a
/// required key that is missing.
void read_keys(const TomlReader& table, Scenario& scenario);

/// What to write in place of a key that PyTorch, another library or an older version has for the
/// same, or that nothing here stands for: "write parallel.kind = \"fsdp2\"". `table`: where it was
/// written, "ddp"; the whole file is "". Capital letters and underscores in front do not count.
/// Empty: nothing is known of it.
[[nodiscard]] std::string advice_for_key(const std::string& table, const std::string& key);

/// Returns the advice for a kind of parallelism, as "FULL_SHARD".
[[nodiscard]] std::string advice_for_kind(const std::string& kind);

}  // namespace stepsim
