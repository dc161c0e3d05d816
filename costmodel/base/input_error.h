#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace stepsim {

/// The place in a user's file where something is wrong. Lines and columns count from 1; 0: unknown.
struct SourcePlace {
  std::string file;
  int line = 0;
  int column = 0;
  std::string text = {};  ///< The whole line, to print with a caret below; may be empty.
};

/// A list that helps to mend an error; the program names the command that prints it.
enum class Lookup { None, Policies, Models, Profiles };

/// Reports bad input to a person who has the file open; the program exits with status 2.
class InputError : public std::runtime_error {
 public:
  /// what() is the message alone. Code that knows the place adds it; otherwise the program's name
  /// is printed in its stead.
  explicit InputError(const std::string& message, Lookup lookup = Lookup::None);

  /// Formats the message as fmt::format() does.
  template <typename First, typename... Rest>
  explicit InputError(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest)
      : InputError(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...)) {}

  /// what() is the complete message: `file:line:col: error: message`, then the line and a caret
  /// when they are known. `place.file` may also be an option or a command.
  InputError(const SourcePlace& place, const std::string& message, Lookup lookup = Lookup::None);

  /// Formats the message at the place as fmt::format() does.
  template <typename First, typename... Rest>
  InputError(const SourcePlace& place,
             fmt::format_string<First, Rest...> text,
             First&& first,
             Rest&&... rest)
      : InputError(place,
                   fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...)) {}

  [[nodiscard]] bool has_place() const { return has_place_; }
  /// The place; without a file where there is none.
  [[nodiscard]] const SourcePlace& place() const { return place_; }
  [[nodiscard]] Lookup lookup() const { return lookup_; }

 private:
  bool has_place_ = false;
  SourcePlace place_;
  Lookup lookup_ = Lookup::None;
};

/// Reports that one field of a value is wrong; what() is "field: reason". Code that read the value
/// from a file catches it and adds the place of that field.
class FieldError : public InputError {
 public:
  FieldError(const std::string& field, const std::string& reason);

  [[nodiscard]] const std::string& field() const { return field_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  std::string field_;
  std::string reason_;
};

/// Reports a fault of the machine, not of the input (disk full, no device); the program exits with
/// status 3.
class EnvironmentFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// Formats the message as fmt::format() does.
  template <typename First, typename... Rest>
  explicit EnvironmentFault(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest)
      : EnvironmentFault(
            fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
};

/// Returns the known name nearest to `name` by edit distance, or nothing when none is near.
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string> known);

/// Returns "unknown WHAT 'name'; did you mean 'x'? known: a, b, c". Of a long list of known names
/// only those that are like it are told.
[[nodiscard]] std::string unknown_name(std::string_view what,
                                       std::string_view name,
                                       std::span<const std::string> known);

/// Tells whether a text is UTF-8.
[[nodiscard]] bool is_utf8(std::string_view text);
/// Makes a text safe for one terminal line: control characters become \xNN, and the text is cut at
/// `limit` bytes.
[[nodiscard]] std::string printable(std::string_view text, std::size_t limit = 200);

/// Returns the text with control characters other than line ends and tabs, and bytes that are not
/// UTF-8, as \xNN.
[[nodiscard]] std::string without_controls(std::string_view text);

}  // namespace stepsim
