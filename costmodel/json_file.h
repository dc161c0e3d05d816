#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace stepsim {

using Json = nlohmann::ordered_json;

/// Whole file as text. Raises InputError: missing or unreadable ("-" reads standard input).
[[nodiscard]] std::string read_text(const std::string& path);

/// Parses JSON; a syntax error becomes InputError with file:line:col and a caret. Duplicate keys,
/// NaN and infinities are refused.
[[nodiscard]] Json parse_json(const std::string& text, const std::string& file, int first_line = 1);

/// Writes to `path + ".tmp"`, flushes and renames, so that a full disk leaves the old file intact.
/// "-" writes to standard output. Raises EnvironmentFault.
void write_text_atomically(const std::string& path, std::string_view text);

/// Typed access to an object's members with errors that name file, line and key path. Unknown
/// members are reported by finish().
class JsonReader {
 public:
  JsonReader(const Json& object, std::string file, int line, std::string path);
  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] const Json& get(std::string_view key);  ///< Required.
  [[nodiscard]] double number(std::string_view key);     ///< Finite.
  [[nodiscard]] double number_or(std::string_view key, double otherwise);
  [[nodiscard]] std::int64_t integer(std::string_view key);
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t otherwise);
  [[nodiscard]] std::string text(std::string_view key);
  [[nodiscard]] std::string text_or(std::string_view key, std::string otherwise);
  [[nodiscard]] bool boolean_or(std::string_view key, bool otherwise);
  /// Raises InputError for this member: "file:line: error: path.key: message".
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  /// Refuses a file of another format or version: `expected` as "stepsim-profile/1".
  void require_format(std::string_view expected);

 private:
  const Json& object_;
  std::string file_;
  int line_;
  std::string path_;
};

}  // namespace stepsim
