#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepsim {

/// One call of fully_shard below the model: the modules that it is given.
struct NamedUnit {
  std::string name;  ///< "norm + lm_head"
  std::vector<std::string> modules;
  std::string entry = {};  ///< What named it, "layers.*".
};

/// The modules that hold tensors, themselves or in those below them, by the names that
/// named_modules() gives them: "layers", "layers.0" and "layers.0.norm" of "layers.0.norm.weight".
/// Each once, in the order of the tensors.
[[nodiscard]] std::vector<std::string> module_names(std::span<const std::string> tensors);

/// Tells whether a shell pattern means a name. A `*` or `?` stands for letters of one part of the
/// name, never for a dot.
[[nodiscard]] bool matches_module(const std::string& pattern, std::string_view name);

/// The parts of a text between separators, without the blanks around them. Raises InputError: one
/// is empty.
[[nodiscard]] std::vector<std::string> parts_of_list(const std::string& text, char separator);

/// Names with every number in them as `*`, each once: how errors list what is known.
[[nodiscard]] std::vector<std::string> without_numbers(std::span<const std::string> names);

/// Reads calls of fully_shard: "layers.*; norm + lm_head". Each entry is a call, `+` joins the
/// modules of one. A pattern that stands alone makes a call of each module that it means; in a
/// joined entry all of them belong to the call. Of modules inside one another a call keeps the
/// outer ones, as PyTorch does. Raises InputError: an empty entry, a name that means no module, a
/// module that is in two calls.
[[nodiscard]] std::vector<NamedUnit> named_units(const std::string& text,
                                                 std::span<const std::string> modules);

/// The call that takes a tensor or a module, by its name: of those that have a module around it, or
/// the module itself, the innermost. -1: none does.
[[nodiscard]] int unit_around(std::span<const NamedUnit> units, std::string_view name);

}  // namespace stepsim
