#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/scenario/key.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/toml_reader.h"

namespace stepsim {

/// Readers of the tables of a scenario file. Each fills its fields of `scenario` and raises
/// InputError with the place of what is wrong. Later ones read what earlier ones have filled in, so
/// they run in the order of parse_scenario().

/// Reads [scenario], [cluster] and [optimizer]; only the last may be missing.
void read_scenario_table(const TomlReader& root, Scenario& scenario);
void read_cluster(const TomlReader& root, Scenario& scenario);
void read_optimizer(const TomlReader& root, Scenario& scenario);

/// Reads [parallel], which may be missing, before [ddp].
void read_parallel(const TomlReader& root, Scenario& scenario);

/// Raises InputError where the kind of parallelism refuses what [parallel] and [ddp] say.
void check_parallel(const TomlReader& root, const Scenario& scenario);

/// Reads [ddp], which may be missing, after [cluster] and [model].
void read_ddp(const TomlReader& root, Scenario& scenario);

/// Reads [interference], [host], [noise] and [times]; all may be missing.
void read_machine(const TomlReader& root, Scenario& scenario);

/// Reads [new_shapes], which may be missing.
void read_new_shapes(const TomlReader& root, Scenario& scenario);

/// Reads `topology` and `all_reduce` of [cluster], after its other keys; both may be missing.
void read_collectives(const TomlReader& root, Scenario& scenario);

/// Reads [model]: a preset with changes, or a family by its sizes.
void read_model(const TomlReader& root, Scenario& scenario);

/// The table `varlen` of the model or of a policy; `fallback` stands for all that it leaves out.
[[nodiscard]] VarlenCall read_varlen(const TomlReader& owner, const VarlenCall& fallback);

/// Reads [data], after [cluster] and [model].
void read_data(const TomlReader& root, Scenario& scenario);

/// Reads [[policy]], after [data].
void read_policies(const TomlReader& root, Scenario& scenario);

/// A table of lengths, of [data] or of a policy.
[[nodiscard]] LengthSource read_lengths(const TomlReader& table, const Scenario& scenario);
/// Raises InputError at the table of these lengths when they can be longer than the model takes.
void check_longest(const TomlReader& table, const LengthSource& source, const Scenario& scenario);

/// Calls `read(table, rank)` for each table of a list that says something of single ranks.
/// `example` stands in messages. Raises InputError: an item is no table, or its `rank` is out of
/// range or listed twice.
void read_by_rank(const TomlReader& owner,
                  const std::string& key,
                  const std::string& example,
                  int ranks,
                  const std::function<void(const TomlReader& table, int rank)>& read);

/// The table of that name. Raises InputError where the file has none.
[[nodiscard]] TomlReader required_table(const TomlReader& root, const std::string& name);

/// Rows of the tables, for key_tables().
[[nodiscard]] std::vector<Key> scenario_keys();
[[nodiscard]] std::vector<Key> cluster_keys();
[[nodiscard]] std::vector<Key> topology_keys();
[[nodiscard]] std::vector<Key> model_keys();
[[nodiscard]] std::vector<Key> varlen_keys();
[[nodiscard]] std::vector<Key> parallel_keys();
[[nodiscard]] std::vector<Key> ddp_keys();
[[nodiscard]] std::vector<Key> communication_hook_keys();
[[nodiscard]] std::vector<Key> interference_keys();
[[nodiscard]] std::vector<Key> host_keys();
[[nodiscard]] std::vector<Key> noise_keys();
[[nodiscard]] std::vector<Key> times_keys();
[[nodiscard]] std::vector<Key> new_shapes_keys();
[[nodiscard]] std::vector<Key> mechanism_keys();
[[nodiscard]] std::vector<Key> optimizer_keys();
[[nodiscard]] std::vector<Key> data_keys();
[[nodiscard]] std::vector<Key> loading_keys();
[[nodiscard]] std::vector<Key> sampler_keys();
[[nodiscard]] std::vector<Key> length_keys();
[[nodiscard]] std::vector<Key> policy_keys();

}  // namespace stepsim
