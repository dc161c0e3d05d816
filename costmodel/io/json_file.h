#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "costmodel/base/input_error.h"

namespace stepsim {

using Json = nlohmann::ordered_json;

/// Whole file as text. Raises InputError: missing or unreadable ("-" reads standard input), or more
/// than `most_bytes`.
[[nodiscard]] std::string read_text(const std::string& path, std::size_t most_bytes = SIZE_MAX);

/// Parses JSON; a syntax error becomes InputError with file:line:col and a caret. Duplicate keys,
/// NaN, infinities, numbers beyond the range of a double and nesting deeper than 100 are refused.
[[nodiscard]] Json parse_json(std::string_view text, const std::string& file, int first_line = 1);

/// Line of the value at `path` ("ops[3].n") in JSON text that parse_json accepts; 0 when absent.
[[nodiscard]] int line_of(std::string_view text, std::string_view path);

/// Writes to `path + ".tmp"`, flushes and renames, so that a full disk leaves the old file intact.
/// "-" writes to standard output; a device or pipe is written in place. Raises EnvironmentFault.
void write_text_atomically(const std::string& path, std::string_view text);

/// Typed access to an object's members with errors that name file, line and key path. Members that
/// nobody asks for are ignored, so that a file of a later minor version still reads.
class JsonReader {
 public:
  /// `line` is the line of the whole object (a line of a JSONL file). With `source`, the text that
  /// `object` was parsed from (line 1 = its first), errors name the line of the member itself.
  /// `object` and `source` must outlive the reader. Raises InputError when it is no object.
  JsonReader(const Json& object,
             std::string file,
             int line,
             std::string path,
             const std::string* source = nullptr);
  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] const Json& get(std::string_view key);  ///< Required.
  [[nodiscard]] double number(std::string_view key);    ///< Finite.
  [[nodiscard]] double number_or(std::string_view key, double fallback);
  [[nodiscard]] double not_negative(std::string_view key);
  [[nodiscard]] double not_negative_or(std::string_view key, double fallback);
  /// [lo, hi] with least <= lo <= hi.
  [[nodiscard]] std::pair<double, double> range(std::string_view key, double least = 0);
  [[nodiscard]] std::int64_t integer(std::string_view key);
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t fallback);
  /// An integer from `lo` to `hi`, as int.
  [[nodiscard]] int integer_in(std::string_view key, int lo, int hi);
  [[nodiscard]] std::uint64_t unsigned_integer(std::string_view key);  ///< The full 64 bits.
  [[nodiscard]] std::string text(std::string_view key);
  [[nodiscard]] std::string text_or(std::string_view key, std::string fallback);
  [[nodiscard]] bool boolean(std::string_view key);
  [[nodiscard]] bool boolean_or(std::string_view key, bool fallback);
  [[nodiscard]] std::vector<double> numbers(std::string_view key);         ///< Array, required.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key);  ///< Array, required.
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);      ///< Array, required.
  [[nodiscard]] JsonReader object(std::string_view key);                   ///< Required.
  [[nodiscard]] std::vector<JsonReader> objects(std::string_view key);     ///< Array, required.
  /// Runs `parse` on the member's text; an InputError (an unknown name) gets file, line and key.
  template <typename Parse>
  [[nodiscard]] auto parsed(std::string_view key, Parse parse) {
    const std::string value = text(key);
    try {
      return parse(std::string_view{value});
    } catch (const InputError& error) {
      fail(key, error.what());
    }
  }
  /// Raises InputError for this member: "file:line: error: path.key: message".
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  /// The same for an element of an array member: "path.key[2]: message".
  [[noreturn]] void fail(std::string_view key, std::size_t index, const std::string& message) const;
  /// Refuses a file of another format or version: `expected` as "stepsim-profile/1".
  void require_format(std::string_view expected);

 private:
  [[nodiscard]] const Json& array(std::string_view key);
  [[noreturn]] void fail_at(const std::string& path, const std::string& message) const;
  [[nodiscard]] std::string path_of(std::string_view key) const;

  const Json& object_;
  std::string file_;
  int line_;
  std::string path_;
  const std::string* source_;
};

}  // namespace stepsim
