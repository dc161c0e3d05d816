#include "calibrate/import/kineto/kineto_plain_rows.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "costmodel/io/json_lines.h"

namespace stepsim {
namespace {

namespace ondemand = simdjson::ondemand;

static_assert(kJsonPadding >= simdjson::SIMDJSON_PADDING);

/// After a row that is not plain, few are looked at together, since more such rows may follow.
constexpr std::size_t kSmallWindow = std::size_t{1} << 12;
constexpr std::size_t kLargeWindow = std::size_t{1} << 18;

constexpr std::string_view kBlanks = " \t\r\n";

bool is_ascii_character(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Whether a row ends with the brace at `place`: a comma and another row follow. It may be wrong
/// inside a row, which then turns out to be cut.
bool ends_row(std::string_view text, std::size_t place) {
  const std::size_t comma = text.find_first_not_of(kBlanks, place + 1);
  if (comma == std::string_view::npos || text[comma] != ',') {
    return false;
  }
  const std::size_t next = text.find_first_not_of(kBlanks, comma + 1);
  return next != std::string_view::npos && text[next] == '{';
}

/// The place behind the last row that ends within the first `size` characters; 0 if none does.
std::size_t last_end(std::string_view text, std::size_t size) {
  std::size_t place = text.rfind('}', size - 1);
  while (place != std::string_view::npos && place > 0) {
    if (ends_row(text, place)) {
      return place + 1;
    }
    place = text.rfind('}', place - 1);
  }
  return 0;
}

/// Tells a client what a row holds; each function returns false where the row is not plain.
class Teller {
 public:
  explicit Teller(KinetoClient& client) : client_(client) {}

  bool object(ondemand::value& value, std::size_t depth) {
    ondemand::object members;
    if (depth > kDeepest || value.get_object().get(members) != simdjson::SUCCESS) {
      return false;
    }
    client_.open_object();
    for (auto result : members) {
      if (result.error() != simdjson::SUCCESS) {
        return false;
      }
      ondemand::field& member = result.value_unsafe();  // Copies would cost a tenth of all time.
      if (!key(member.key().raw()) || !any(member.value(), depth)) {
        return false;
      }
    }
    client_.close_object();
    return true;
  }

 private:
  static constexpr std::size_t kDeepest = 50;

  bool key(const char* raw) {
    // Stage 1 of simdjson has found the end of each string.
    const char* end = raw;
    while (*end != '"') {
      if (*end == '\\') {
        return false;
      }
      ++end;
    }
    client_.name_member({raw, end});
    return true;
  }

  bool any(ondemand::value& value, std::size_t depth) {
    ondemand::json_type type{};
    if (value.type().get(type) != simdjson::SUCCESS) {
      return false;
    }
    switch (type) {
      case ondemand::json_type::object:
        return object(value, depth + 1);
      case ondemand::json_type::array:
        return array(value, depth + 1);
      case ondemand::json_type::string:
        return string(value);
      case ondemand::json_type::number:
        return number(token_of(value));
      case ondemand::json_type::boolean:
        return word(value, "true") || word(value, "false");
      default:
        return word(value, "null");
    }
  }

  bool array(ondemand::value& value, std::size_t depth) {
    ondemand::array elements;
    if (depth > kDeepest || value.get_array().get(elements) != simdjson::SUCCESS) {
      return false;
    }
    client_.open_list();
    for (auto result : elements) {
      if (result.error() != simdjson::SUCCESS || !any(result.value_unsafe(), depth)) {
        return false;
      }
    }
    client_.close_list();
    return true;
  }

  /// The value as it is written, without the blanks behind it.
  static std::string_view token_of(ondemand::value& value) {
    std::string_view token = value.raw_json_token();
    while (token.size() > 1 && is_blank(token.back())) {
      token.remove_suffix(1);
    }
    return token;
  }

  bool string(ondemand::value& value) {
    // To simdjson, which has not been asked for its text, a string before a colon is a key, also
    // where a value belongs: {"name": "a": 1} would be an object.
    const std::string_view raw = value.raw_json_token();
    const char next = *(raw.data() + raw.size());
    const std::string_view token = token_of(value);
    if (next == ':' || token.size() < 2 || token.back() != '"') {
      return false;
    }
    const std::string_view inside = token.substr(1, token.size() - 2);
    bool has_escapes = false;
    bool is_ascii = true;
    for (const char c : inside) {
      has_escapes |= c == '\\';
      is_ascii &= is_ascii_character(c);
    }
    std::string_view unescaped = inside;
    if (has_escapes && (inside.find("\\u") != std::string_view::npos ||
                        value.get_string().get(unescaped) != simdjson::SUCCESS)) {
      return false;
    }
    if (is_ascii) {
      return tell(unescaped, KinetoValue::Text);
    }
    std::string repaired(unescaped);  // As KinetoSource does it.
    std::ranges::replace_if(
        repaired, [](char c) { return !is_ascii_character(c); }, '?');
    return tell(repaired, KinetoValue::Text);
  }

  bool word(ondemand::value& value, std::string_view expected) {
    return token_of(value) == expected && tell("", KinetoValue::Other);
  }

  /// Only numbers that no parser reads otherwise: integers of 64 bits and short decimals.
  bool number(std::string_view token) {
    constexpr std::size_t kMostDigits = 18;
    constexpr std::size_t kLongest = 40;
    const std::size_t sign = token.front() == '-' ? 1 : 0;
    const auto after_digits = std::ranges::find_if_not(token.substr(sign), is_digit);
    const auto digits = static_cast<std::size_t>(after_digits - token.begin()) - sign;
    if (digits == 0 || (digits > 1 && token[sign] == '0') || digits > kMostDigits) {
      return false;
    }
    const std::string_view rest = token.substr(sign + digits);
    if (rest.empty()) {
      return tell(token == "-0" ? "0" : token, KinetoValue::Integer);
    }
    if (rest.front() != '.' || rest.size() < 2 || token.size() > kLongest ||
        !std::ranges::all_of(rest.substr(1), is_digit)) {
      return false;
    }
    return tell(token, KinetoValue::Decimal);
  }

  bool tell(std::string_view value, KinetoValue kind) {
    if (client_.takes_value()) {
      client_.take(value, kind);
    }
    return true;
  }

  KinetoClient& client_;
};

}  // namespace

class KinetoPlainRows::Parser : public ondemand::parser {};

KinetoPlainRows::KinetoPlainRows() : parser_(std::make_unique<Parser>()), window_(kSmallWindow) {}

KinetoPlainRows::~KinetoPlainRows() = default;

std::size_t KinetoPlainRows::read(std::span<char> text, KinetoClient& client) {
  const std::string_view view{text.data(), text.size()};
  const std::size_t comma = view.find_first_not_of(kBlanks);
  if (comma == std::string_view::npos || view[comma] != ',') {
    return 0;
  }
  std::size_t end = last_end(view, std::min(window_, view.size()));
  if (end == 0) {
    end = last_end(view, view.size());  // A row that is longer than the window.
  }
  if (end == 0) {
    return 0;
  }
  // The rows become a list of their own.
  const char behind = text[end];
  text[comma] = '[';
  text[end] = ']';
  std::size_t told = comma;
  window_ = std::min(2 * window_, kLargeWindow);
  ondemand::document list;
  ondemand::array rows;
  bool plain =
      parser_->iterate(text.data() + comma, end + 1 - comma, end + 1 - comma + kJsonPadding)
              .get(list) == simdjson::SUCCESS &&
      list.get_array().get(rows) == simdjson::SUCCESS;
  if (plain) {
    Teller teller(client);
    for (auto result : rows) {
      const char* next = nullptr;
      plain = result.error() == simdjson::SUCCESS && teller.object(result.value_unsafe(), 0) &&
              list.current_location().get(next) == simdjson::SUCCESS;
      if (!plain) {
        break;
      }
      told = static_cast<std::size_t>(next - text.data());
    }
  }
  text[comma] = ',';
  text[end] = behind;
  if (!plain) {
    window_ = kSmallWindow;
  }
  return told == comma ? 0 : told;
}

}  // namespace stepsim
