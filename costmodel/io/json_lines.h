#pragma once

#include <string>
#include <string_view>

#include "costmodel/io/json_file.h"
#include "costmodel/io/json_value.h"

namespace stepsim {

/// What to do with a last line that was cut off (no newline behind it and no complete JSON).
enum class CutLine { Refuse, Drop };

/// A JSONL file, line by line; blank lines are skipped. Errors name file and line.
class JsonLines {
 public:
  /// Reads the whole file. Raises InputError when it is missing.
  JsonLines(std::string path, CutLine cut_line);

  /// Goes on to the next value; false at the end. Raises InputError on a line that is no JSON.
  [[nodiscard]] bool next();
  /// The first line, which must be an object with this "format". Raises InputError.
  [[nodiscard]] JsonReader header(std::string_view format);

  [[nodiscard]] const Json& value() const { return *value_; }
  [[nodiscard]] int line() const { return line_; }
  /// The current line as an object; valid until the next call of next().
  [[nodiscard]] JsonReader reader() const { return {*value_, path_, line_, ""}; }
  /// True once a cut last line was dropped.
  [[nodiscard]] bool dropped_cut_line() const { return dropped_; }
  /// Raises InputError for the current line as a whole.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::string path_;
  CutLine cut_line_;
  std::string text_;
  std::size_t at_ = 0;
  int line_ = 0;
  bool dropped_ = false;
  JsonValue value_;
};

/// The shortest decimal text that reads back as the same double.
/// Raises std::domain_error: not finite, which JSON cannot say.
[[nodiscard]] std::string json_number(double value);

/// A quoted JSON text; bytes that are no UTF-8 are replaced.
[[nodiscard]] std::string json_text(std::string_view value);

}  // namespace stepsim
