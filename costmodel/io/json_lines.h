#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "costmodel/io/json_file.h"
#include "costmodel/io/json_value.h"
#include "costmodel/io/text_file.h"

namespace stepsim {

/// What to do with a last line that was cut off: it has no newline and is no complete JSON.
enum class CutLine { Refuse, Drop };

/// The bytes behind every line of JsonLines that may be read, as simdjson does.
inline constexpr std::size_t kJsonPadding = 128;

/// Reads a JSONL file line by line and skips blank lines. Errors name file and line.
class JsonLines {
 public:
  /// Opens the file, of which no more than a line and a piece are in memory. Raises InputError when
  /// it is missing.
  JsonLines(std::string path, CutLine cut_line);

  /// Moves to the next value; returns false at the end. Raises InputError for a line that is not
  /// JSON, and for a second header.
  [[nodiscard]] bool next();
  /// Moves to the next line that is not blank, unparsed; returns false at the end.
  [[nodiscard]] bool next_line();
  /// Parses the line of next_line(). Returns false for a last line that was cut off and is
  /// dropped. Raises InputError as next() does.
  [[nodiscard]] bool parse();
  /// Reads the first line, which must be an object with this "format". Raises InputError if not.
  [[nodiscard]] JsonReader header(std::string_view format);

  [[nodiscard]] const Json& value() const { return *value_; }
  /// The text of the current line, valid until the next one is read.
  [[nodiscard]] std::string_view text() const { return at_line_; }
  [[nodiscard]] int line() const { return line_; }
  /// Returns the current line as an object; it is valid until the next call of next().
  [[nodiscard]] JsonReader reader() const { return {*value_, path_, line_, ""}; }
  /// True once a last line that was cut off has been dropped.
  [[nodiscard]] bool dropped_cut_line() const { return dropped_; }
  /// Raises InputError for the current line as a whole.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  void refuse_second_header() const;
  /// The place of the newline that ends the next line; npos where none does.
  std::size_t end_of_line();

  std::string path_;
  CutLine cut_line_;
  TextFile file_;
  std::string text_;    ///< What was read of the file from the current line on.
  std::string format_;  ///< Of the header; empty until that was read.
  std::size_t at_ = 0;
  std::string_view at_line_;
  bool ends_ = false;  ///< The current line has its newline.
  int line_ = 0;
  bool dropped_ = false;
  JsonValue value_;
};

/// Formats a number as the shortest decimal text that reads back as the same double.
/// Raises std::domain_error: the value is not finite, which JSON cannot express.
[[nodiscard]] std::string json_number(double value);

/// Formats a quoted JSON string; bytes that are not UTF-8 are replaced.
[[nodiscard]] std::string json_text(std::string_view value);

}  // namespace stepsim
