#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/scenario/toml_reader.h"

namespace stepsim {

/// The parts of a scenario file; each fills its fields of `scenario` and raises InputError with the
/// place of what is wrong. Those called later may read what earlier ones have filled in.

/// [scenario], [cluster], [optimizer]; the last one may be missing.
void read_scenario_table(const TomlReader& root, Scenario& scenario);
void read_cluster(const TomlReader& root, Scenario& scenario);
void read_optimizer(const TomlReader& root, Scenario& scenario);

/// [ddp], after [cluster] and [model]; may be missing.
void read_ddp(const TomlReader& root, Scenario& scenario);

/// [interference], [host], [noise], [times]; all may be missing.
void read_machine(const TomlReader& root, Scenario& scenario);

/// [data] workers, prefetch, loading.
void read_loader(const TomlReader& root, Scenario& scenario);

/// A time such as "3 ms"; `fallback` without the key.
[[nodiscard]] Duration read_duration_or(const TomlReader& table,
                                        const std::string& key,
                                        Duration fallback);

/// [cluster] topology and all_reduce, after [cluster]; both may be missing.
void read_collectives(const TomlReader& root, Scenario& scenario);

/// [model]: a preset with changes, or a family by its sizes.
void read_model(const TomlReader& root, Scenario& scenario);

/// A table `varlen`, of the model or of a policy; `fallback` without the table, and for what it
/// leaves out.
[[nodiscard]] VarlenCall read_varlen(const TomlReader& owner, const VarlenCall& fallback);

/// [data], after [cluster] and [model].
void read_data(const TomlReader& root, Scenario& scenario);

/// [[policy]], after [data].
void read_policies(const TomlReader& root, Scenario& scenario);

/// [[published]], after all else; may be missing.
void read_published(const TomlReader& root, Scenario& scenario);

/// A table of lengths, in [data] or in a policy.
[[nodiscard]] LengthSource read_lengths(const TomlReader& table, const Scenario& scenario);
/// Raises InputError at the table of these lengths: they can be longer than the model takes.
void check_longest(const TomlReader& table, const LengthSource& source, const Scenario& scenario);

/// A required table of the file.
[[nodiscard]] TomlReader required_table(const TomlReader& root, const std::string& name);

/// The text of `key`, which must be one of `known`; without it the first of them.
[[nodiscard]] std::string read_choice(const TomlReader& table,
                                      const std::string& key,
                                      const std::string& fallback,
                                      std::span<const std::string> known);

/// A path in the file is relative to the file; one from the command line stands as it is.
[[nodiscard]] std::string resolved_path(const TomlReader& table, const std::string& key);

}  // namespace stepsim
