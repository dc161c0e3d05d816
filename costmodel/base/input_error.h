#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace stepsim {

/// Where in a user's file something is wrong. Line and column count from 1; 0 means not known.
struct SourcePlace {
  std::string file;
  int line = 0;
  int column = 0;
  std::string text;  ///< The whole line, to print with a caret below; may be empty.
};

/// Bad input: a message for a person who has the file open. Exit status 2.
///
/// what() is complete: `file:line:col: error: message`, then the line and a caret when known.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& message);
  InputError(const SourcePlace& place, const std::string& message);
};

/// A fault of the machine, not of the input (disk full, no device). Exit status 3.
class EnvironmentFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The known name nearest to `name` by edit distance; empty when none is near.
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string> known);

/// "unknown WHAT 'name'; did you mean 'x'? known: a, b, c"; a long list only where nothing is near.
[[nodiscard]] std::string unknown_name(std::string_view what,
                                       std::string_view name,
                                       std::span<const std::string> known);

/// A text made safe for one terminal line: control characters as \xNN, cut at `limit` bytes.
[[nodiscard]] std::string printable(std::string_view text, std::size_t limit = 200);

}  // namespace stepsim
