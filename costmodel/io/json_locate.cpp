#include <cstddef>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "costmodel/io/json_handler.h"

namespace stepsim {
namespace {

/// Reads the text up to where the value at `path` begins.
class Locator : public JsonHandler {
 public:
  Locator(std::string_view text, std::string_view path) : JsonHandler(text), path_(path) {}

  [[nodiscard]] int line() const { return line_; }

  bool null() override { return value(0); }
  bool boolean(bool /*value*/) override { return value(0); }
  // The parser has to read one character more to see that a number ends.
  bool number_integer(number_integer_t /*value*/) override { return value(1); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return value(1); }
  bool number_float(number_float_t /*value*/, const string_t& /*raw*/) override { return value(1); }
  bool string(string_t& /*value*/) override { return value(0); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return open(false); }
  bool start_array(std::size_t /*size*/) override { return open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    levels_.back().key = name;
    return true;
  }
  bool parse_error(std::size_t /*position*/,
                   const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  struct Level {
    bool array = false;
    std::size_t index = 0;
    std::string key;
  };

  /// Returns true, which continues the parser, unless the value that begins here is the one sought.
  bool look(std::size_t read_ahead) {
    std::string here;
    for (const auto& level : levels_) {
      if (level.array) {
        here += fmt::format("[{}]", level.index);
      } else {
        here += (here.empty() ? "" : ".") + level.key;
      }
    }
    if (here != path_) {
      return true;
    }
    line_ = place_of(source(), offset() - read_ahead, "", 1).line;
    return false;
  }

  void count() {
    if (!levels_.empty()) {
      ++levels_.back().index;
    }
  }

  bool value(std::size_t read_ahead) {
    const bool go_on = look(read_ahead);
    count();
    return go_on;
  }

  bool open(bool array) {
    const bool go_on = look(0);
    levels_.push_back({array, 0, ""});
    return go_on;
  }

  bool close() {
    levels_.pop_back();
    count();
    return true;
  }

  std::string_view path_;
  int line_ = 0;
  std::vector<Level> levels_;
};

}  // namespace

int line_of(std::string_view text, std::string_view path) {
  Locator locator(text, path);
  locator.run();
  return locator.line();
}

}  // namespace stepsim
