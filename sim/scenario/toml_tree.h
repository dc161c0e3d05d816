#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/input_error.h"

namespace stepsim {

/// Line and column from 1; 0 when not known.
struct TomlPlace {
  int line = 0;
  int column = 0;
};

/// One value of a TOML file with its places: plain data, so that only the parser's own file needs
/// the TOML library.
struct TomlValue {
  enum class Kind { Boolean, Integer, Real, Text, DateTime, List, Table };
  Kind kind = Kind::Table;
  std::string key;  ///< Its name in a table; empty inside a list.
  TomlPlace key_place;
  TomlPlace place;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<TomlValue> children;  ///< List: items. Table: members, as they stand in the file.
  /// List: whole numbers in place of items, where there are many and no file holds them; else null.
  std::shared_ptr<const std::vector<std::int64_t>> integers;
  /// Not empty: the value came from `--set key=text` instead of the file. Holds for its children.
  std::string override_option;  ///< "--set", or "--over" of a study.
  std::string override_key;
  std::string override_text;
  /// A number, date or truth value of an override whose key takes text: `--set ddp.torch=2.4`.
  mutable bool read_as_text = false;

  [[nodiscard]] const TomlValue* find(std::string_view name) const;
  [[nodiscard]] TomlValue* find(std::string_view name);
};

/// "a string", "an integer", "a table", … for messages.
[[nodiscard]] std::string_view describe(const TomlValue& value);

struct TomlDocument {
  std::string file;
  std::vector<std::string> lines;
  TomlValue root;
  /// The files that it names, as the keys that read them resolved them.
  mutable std::vector<std::string> named_files = {};
};

/// Raises InputError with file:line:col and a caret: syntax errors, duplicate keys, text that is
/// not UTF-8, more than 1 MiB.
[[nodiscard]] TomlDocument parse_toml(const std::string& text, const std::string& file);

/// One value as it may stand behind `key =`; nothing when the text is not one TOML value.
[[nodiscard]] std::optional<TomlValue> parse_toml_value(const std::string& text);

/// Where to show an error.
enum class TomlAt { Key, Value };

/// Raises InputError at a value or its key: `file:line:col: error: path: message` with the line and
/// a caret; for an override `--set key=text: error: message`.
[[noreturn]] void fail_at(const TomlDocument& document,
                          const TomlValue& value,
                          TomlAt at,
                          const std::string& path,
                          const std::string& message,
                          Lookup lookup = Lookup::None);

}  // namespace stepsim
