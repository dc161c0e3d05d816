#pragma once

#include <cstdint>
#include <exception>
#include <string_view>
#include <vector>

#include <simdjson.h>

namespace stepsim {

/// Raised where JsonRow does not answer: JsonReader then reads the same text, and says what is
/// wrong with it or takes it all the same.
class RefusedRow : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "a row for JsonReader"; }
};

/// An object of JSON that simdjson has read, with the questions of JsonReader. It answers as
/// JsonReader does or raises RefusedRow, so that one function can read a row of both. It is valid
/// until its parser reads another row.
class JsonRow {
 public:
  /// Raises RefusedRow for a key that is there twice.
  explicit JsonRow(simdjson::dom::object object);

  [[nodiscard]] bool has(std::string_view key);
  [[nodiscard]] bool is_null(std::string_view key);
  [[nodiscard]] double number(std::string_view key);
  [[nodiscard]] double not_negative(std::string_view key);
  [[nodiscard]] double not_negative_or(std::string_view key, double fallback);
  [[nodiscard]] std::int64_t integer(std::string_view key);
  [[nodiscard]] int integer_in(std::string_view key, int lo, int hi);
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key);
  [[nodiscard]] std::vector<JsonRow> objects(std::string_view key);
  /// Raises RefusedRow, whatever the arguments of JsonReader's function of this name.
  template <typename... Arguments>
  [[noreturn]] void fail(const Arguments&... /*what*/) const {
    throw RefusedRow();
  }

 private:
  bool find(std::string_view key);
  simdjson::dom::element get(std::string_view key);
  simdjson::dom::array array(std::string_view key);

  simdjson::dom::object object_;
  simdjson::dom::object::iterator at_;  ///< The member that was asked for last.
  std::uint64_t marks_ = 0;             ///< Of all keys.
};

/// Reads texts of one object each.
class JsonRowParser {
 public:
  JsonRowParser();
  /// `text` is followed by kJsonPadding bytes that may be read. Raises RefusedRow for what
  /// JsonReader would refuse, for text that is no object or has escapes in its strings, and for
  /// integers that only a double can hold.
  [[nodiscard]] JsonRow parse(std::string_view text);

 private:
  simdjson::dom::parser parser_;
};

}  // namespace stepsim
