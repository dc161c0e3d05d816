#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"

namespace stepsim {

/// A key of the scenario file as `stepsim keys` lists it.
struct KeyRow {
  std::string key;                   ///< "ddp.bucket_cap"
  std::string meaning;               ///< Without Markdown; empty where examples alone show the key.
  std::string fallback;              ///< The default; empty where the key is required, or has none.
  std::vector<std::string> choices;  ///< The texts that it takes; empty: it is not a choice.
};

/// All keys, in the order of the documentation, or those of the words: a key, a table with all
/// below it, else each key whose name or meaning holds the word. Raises InputError: a word is of no
/// key; it names the nearest one.
[[nodiscard]] std::vector<KeyRow> key_rows(const std::vector<std::string>& words);

/// The JSON schema (2020-12) of scenario files, by which editors complete and check them: TOML has
/// the same values. It refuses keys that no scenario has, texts that a choice does not take, and
/// wrong types where the table of keys tells them; all else is for the program.
[[nodiscard]] Json scenario_schema();

}  // namespace stepsim
