#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "costmodel/base/input_error.h"

namespace stepsim {

using Json = nlohmann::ordered_json;

/// The upper limit of JsonReader::integer_in() where any int will do.
inline constexpr int kMaxInt = std::numeric_limits<int>::max();

/// The longest text that is read: a quarter of the memory that there is, at least 16 MiB.
[[nodiscard]] std::size_t longest_text();

/// Reads a whole file as text; "-" reads standard input. Raises InputError: the file is missing,
/// unreadable, larger than `max_bytes` or longest_text(), or known to be none of ours, as a web
/// page in place of it (foreign_file()).
[[nodiscard]] std::string read_text(const std::string& path, std::size_t max_bytes = SIZE_MAX);

/// Parses JSON; a syntax error becomes InputError with file:line:col and a caret. Duplicate keys,
/// NaN, infinities, numbers beyond the range of a double and nesting deeper than 100 are refused.
[[nodiscard]] Json parse_json(std::string_view text, const std::string& file, int first_line = 1);

/// Returns the line of the value at `path` ("ops[3].n") in JSON text that parse_json() accepts; 0
/// when there is no such value.
[[nodiscard]] int line_of(std::string_view text, std::string_view path);

/// Writes a whole file as AtomicFile does, so that a full disk leaves the old file intact. "-"
/// writes to standard output; a device or pipe is written in place. Raises EnvironmentFault.
void write_text_atomically(const std::string& path, std::string_view text);

/// Reads an object's members by type, with errors that name file, line and key path. Members that
/// nobody asks for are ignored, so that files of a later minor version can still be read.
class JsonReader {
 public:
  /// `line` is the line of the whole object in a JSONL file. If `source` is given, which is the
  /// text that `object` was parsed from, errors name the line of the member itself. `object` and
  /// `source` must outlive the reader. Raises InputError when `object` is not an object.
  JsonReader(const Json& object,
             std::string file,
             int line,
             std::string path,
             const std::string* source = nullptr);
  [[nodiscard]] bool has(std::string_view key) const;
  // The readers below raise InputError when a member has the wrong type. Without a fallback they
  // also do so when it is missing.
  [[nodiscard]] const Json& get(std::string_view key);
  [[nodiscard]] bool is_null(std::string_view key);
  [[nodiscard]] double number(std::string_view key);  ///< A finite number.
  [[nodiscard]] double number_or(std::string_view key, double fallback);
  [[nodiscard]] double not_negative(std::string_view key);
  [[nodiscard]] double not_negative_or(std::string_view key, double fallback);
  /// [lo, hi] with least <= lo <= hi.
  [[nodiscard]] std::pair<double, double> range(std::string_view key, double least = 0);
  [[nodiscard]] std::int64_t integer(std::string_view key);
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t fallback);
  /// Reads an integer from `lo` to `hi`.
  [[nodiscard]] int integer_in(std::string_view key, int lo, int hi);
  [[nodiscard]] std::uint64_t unsigned_integer(std::string_view key);  ///< Any 64-bit value.
  [[nodiscard]] std::string text(std::string_view key);
  [[nodiscard]] std::string text_or(std::string_view key, std::string fallback);
  [[nodiscard]] bool boolean(std::string_view key);
  [[nodiscard]] bool boolean_or(std::string_view key, bool fallback);
  [[nodiscard]] std::vector<double> numbers(std::string_view key);
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key);
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);
  [[nodiscard]] JsonReader object(std::string_view key);
  [[nodiscard]] std::vector<JsonReader> objects(std::string_view key);
  /// Runs `parse` on the member's text; file, line and key are added to its InputError, which may
  /// report an unknown name.
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
  /// Raises InputError for an element of an array member: "path.key[2]: message".
  [[noreturn]] void fail(std::string_view key, std::size_t index, const std::string& message) const;
  /// Raises InputError unless the member "format" is `expected`, such as "stepsim-profile/1".
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
