#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "costmodel/io/json_handler.h"

namespace stepsim {
namespace {

/// The deepest nesting allowed: enough for all our files, and safe for a recursive writer's stack.
constexpr std::size_t kMaxDepth = 100;

/// Builds the document and stops at the first error.
class Builder : public JsonHandler {
 public:
  Builder(std::string_view text, const std::string& file, int first_line)
      : JsonHandler(text), file_(file), first_line_(first_line) {}

  Json take() { return std::move(root_); }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t& /*raw*/) override {
    return scalar(value);
  }
  bool string(string_t& value) override { return scalar(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // Not part of JSON text.
  bool start_object(std::size_t /*size*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Json& object = *open_.back();
    if (object.contains(name)) {
      fail(key_start(), fmt::format("duplicate key '{}'", printable(name)));
    }
    slot_ = &object[name];
    return true;
  }

  bool parse_error(std::size_t position,
                   const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    const std::string message = error.what();
    const std::size_t start =
        token_start(std::min(position, source().size() + 1), last_token.size(), message);
    fail(start, explained(message, start));
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& message) const {
    throw InputError(place_of(source(), offset, file_, first_line_), message);
  }

  /// The parser stands behind the character or token that it could not use; the caret belongs at
  /// its start.
  [[nodiscard]] std::size_t token_start(std::size_t position,
                                        std::size_t token_size,
                                        const std::string& message) const {
    if (message.find("unexpected string literal") != std::string::npos ||
        message.find("unexpected number literal") != std::string::npos) {
      return position - std::min(position, token_size);
    }
    std::size_t start = position > 0 ? position - 1 : 0;
    if (message.find("invalid literal") != std::string::npos ||
        message.find("invalid number") != std::string::npos) {
      constexpr std::string_view kEnds = " \t\r\n,:[]{}\"";
      while (start > 0 && kEnds.find(source()[start - 1]) == std::string_view::npos) {
        --start;
      }
    }
    return start;
  }

  /// Returns the parser's message without its own place and exception number.
  [[nodiscard]] std::string explained(std::string message, std::size_t start) const {
    const std::string_view rest = source().substr(std::min(start, source().size()));
    for (const std::string_view literal : {"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"}) {
      if (rest.substr(0, literal.size()) == literal) {
        return fmt::format("'{}' is not a JSON number; only finite numbers are read", literal);
      }
    }
    if (source().find_first_not_of(" \t\r\n") == std::string_view::npos) {
      return "the file is empty";
    }
    if (source().substr(0, start).find_first_not_of(" \t\r\n") == std::string_view::npos) {
      return "not JSON";
    }
    if (rest.find_first_not_of(" \t\r\n") == std::string_view::npos) {
      return "the file ends in the middle of a value: it is cut short";
    }
    if (message.find("expected end of input") != std::string::npos) {
      return "the JSON ends before this, and more follows: several files in one, or JSON lines";
    }
    for (const std::string_view lead : {"syntax error ", "number overflow"}) {
      if (const std::size_t at = message.find(lead); at != std::string::npos) {
        message.erase(0, at);
        break;
      }
    }
    return printable(message.substr(0, message.find("; last read: ")));
  }

  /// Returns the offset of the key that the parser has just read.
  [[nodiscard]] std::size_t key_start() const {
    for (std::size_t at = offset() - 1; at-- > 0;) {
      std::size_t slashes = 0;
      while (slashes < at && source()[at - 1 - slashes] == '\\') {
        ++slashes;
      }
      if (source()[at] == '"' && slashes % 2 == 0) {
        return at;
      }
    }
    return 0;
  }

  Json& place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return open_.back()->back();
    }
    *slot_ = std::move(value);
    return *slot_;
  }

  template <typename Value>
  bool scalar(Value&& value) {
    place(Json(std::forward<Value>(value)));
    return true;
  }

  bool open(Json value) {
    if (open_.size() >= kMaxDepth) {
      fail(offset() - 1, fmt::format("nested deeper than {} levels", kMaxDepth));
    }
    // A container does not change while one inside it is open, so the pointers stay valid.
    open_.push_back(&place(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& file_;
  int first_line_;
  Json root_;
  Json* slot_ = nullptr;
  std::vector<Json*> open_;
};

}  // namespace

SourcePlace place_of(std::string_view text,
                     std::size_t offset,
                     const std::string& file,
                     int first_line) {
  offset = std::min(offset, text.size());
  SourcePlace place;
  place.file = file;
  place.line = first_line;
  std::size_t start = 0;
  for (std::size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n') {
      ++place.line;
      start = i + 1;
    }
  }
  place.column = 1;
  for (std::size_t i = start; i < offset; ++i) {
    // Continuation bytes of UTF-8 belong to the character before.
    place.column += (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 ? 1 : 0;
  }
  const std::size_t end = std::min(text.find('\n', start), text.size());
  constexpr std::size_t kLongestShown = std::size_t{1} << 20;
  if (end - start <= kLongestShown) {
    place.text = std::string(text.substr(start, end - start));
  }
  return place;
}

Json parse_json(std::string_view text, const std::string& file, int first_line) {
  Builder builder(text, file, first_line);
  builder.run();
  return builder.take();
}

}  // namespace stepsim
