#pragma once

#include <string>

#include "sim/scenario/toml_tree.h"

namespace stepsim {

/// Writes a document as TOML: values of the root, tables and lists of tables under headings, all
/// that is deeper in one line each. Comments are lost; parsing the text gives the same values.
/// Throws std::invalid_argument: the document holds a date.
[[nodiscard]] std::string toml_text(const TomlValue& root);

/// Writes one value as it may stand behind `key =`. Throws std::invalid_argument as toml_text().
[[nodiscard]] std::string toml_value_text(const TomlValue& value);

/// Replaces each text that names a file, seen from the folder of `document.file` or, where it came
/// by `--set`, from here, by the file's absolute path: so that the document can stand elsewhere.
/// Names (of scenarios, models, policies) stay as they are.
void make_paths_absolute(TomlDocument& document);

}  // namespace stepsim
