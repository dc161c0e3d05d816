#include "costmodel/terminal/option_row.h"

#include <cmath>
#include <sstream>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_number.h"

namespace stepsim {

namespace {

constexpr std::size_t kMostListed = 20;

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;  // Clang 14 does not find it by itself.

/// "0 or more", "above 0 and at most 100", "from 0 to 100".
std::string limits_text(const OptionLimits& limits) {
  if (limits.high == std::numeric_limits<double>::infinity()) {
    return limits.without_low ? fmt::format("above {}", limits.low)
                              : fmt::format("{} or more", limits.low);
  }
  return limits.without_low ? fmt::format("above {} and at most {}", limits.low, limits.high)
                            : fmt::format("from {} to {}", limits.low, limits.high);
}

bool is_within(double number, const OptionLimits& limits) {
  return std::isfinite(number) && number <= limits.high &&
         (limits.without_low ? number > limits.low : number >= limits.low);
}

template <typename Number>
std::optional<Number> number_of(const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return parse_number<Number>(*text);
  }
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    if constexpr (std::is_integral_v<Number>) {
      return std::in_range<Number>(*whole) ? std::optional(static_cast<Number>(*whole))
                                           : std::nullopt;
    }
    return static_cast<Number>(*whole);
  }
  const auto* real = std::get_if<double>(&value);
  return real != nullptr && std::is_same_v<Number, double>
             ? std::optional(static_cast<Number>(*real))
             : std::nullopt;
}

template <typename Number>
requires std::is_arithmetic_v<Number> std::string take(const OptionRow& row,
                                                       const OptionValue& value,
                                                       Number& number) {
  const std::optional<Number> given = number_of<Number>(value);
  if (!given) {
    return fmt::format("--{} takes a {}, as {}, not '{}'",
                       row.long_name(),
                       std::is_integral_v<Number> ? "whole number" : "number",
                       std::is_integral_v<Number> ? "8" : "2.5",
                       fmt::join(value_texts(value), " "));
  }
  if (!is_within(static_cast<double>(*given), row.limits)) {
    return fmt::format("--{} must be {}", row.long_name(), limits_text(row.limits));
  }
  number = *given;
  return "";
}

std::string take(const OptionRow& row, const OptionValue& value, bool& flag) {
  if (const bool* given = std::get_if<bool>(&value)) {
    flag = *given;
    return "";
  }
  return fmt::format("--{} is given or not, and has no value", row.long_name());
}

std::string take(const OptionRow& row, const OptionValue& value, std::string& text) {
  const std::vector<std::string> texts = value_texts(value);
  if (texts.size() != 1 || std::holds_alternative<bool>(value)) {
    return fmt::format("--{} takes one text", row.long_name());
  }
  text = texts.front();
  return "";
}

std::string take(const OptionRow& row, const OptionValue& value, NumberRange& range) {
  std::vector<double> ends;
  if (const auto* reals = std::get_if<std::vector<double>>(&value)) {
    ends = *reals;
  } else if (const auto* wholes = std::get_if<std::vector<std::int64_t>>(&value)) {
    ends.assign(wholes->begin(), wholes->end());
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    const std::size_t dots = text->find("..");
    const auto low = parse_number<double>(text->substr(0, dots));
    const auto high = parse_number<double>(
        dots == std::string::npos ? std::string_view() : std::string_view{*text}.substr(dots + 2));
    if (low && high) {
      ends = {*low, *high};
    }
  }
  if (ends.size() != 2 || !(ends[0] >= row.limits.low && ends[0] <= ends[1])) {
    return fmt::format("--{}: expected LOW..HIGH, as 3000..6000", row.long_name());
  }
  range = {ends[0], ends[1]};
  return "";
}

std::string take(const OptionRow& row,
                 const OptionValue& value,
                 std::vector<std::int64_t>& numbers) {
  std::vector<std::int64_t> given;
  std::istringstream list(fmt::format("{}", fmt::join(value_texts(value), ",")));
  for (std::string item; std::getline(list, item, ',');) {
    const auto number = parse_number<std::int64_t>(item);
    if (!number || !is_within(static_cast<double>(*number), row.limits)) {
      return fmt::format("--{} {}: '{}' is no whole number {}",
                         row.long_name(),
                         list.str(),
                         printable(item),
                         limits_text(row.limits));
    }
    given.push_back(*number);
  }
  if (given.empty() || given.size() > kMostListed) {
    return fmt::format("--{} {}: expected 1 to {} numbers with commas between them",
                       row.long_name(),
                       list.str(),
                       kMostListed);
  }
  numbers = std::move(given);
  return "";
}

std::string take(const OptionRow& row, const OptionValue& value, std::vector<std::string>& texts) {
  if (std::holds_alternative<bool>(value)) {
    return fmt::format("--{} takes texts", row.long_name());
  }
  texts = value_texts(value);
  return "";
}

template <typename Value>
std::string take(const OptionRow& row, const OptionValue& value, std::optional<Value>& variable) {
  Value given{};
  std::string wrong = take(row, value, given);
  if (wrong.empty()) {
    variable = given;
  }
  return wrong;
}

/// What the help shows as the default; empty: nothing.
std::string default_text(const OptionVariable& variable) {
  const std::optional<OptionValue> value = value_of(variable);
  return value ? fmt::format("{}", fmt::join(value_texts(*value), ",")) : "";
}

OptionKind kind_of(const OptionRow& row, const OptionVariable& variable) {
  if (std::holds_alternative<bool*>(variable)) {
    return OptionKind::Flag;
  }
  if (std::holds_alternative<std::vector<std::string>*>(variable)) {
    return row.rest ? OptionKind::TextsToNext : OptionKind::Texts;
  }
  return OptionKind::Text;
}

}  // namespace

std::string type_name(const OptionVariable& variable) {
  constexpr const char* kNames[] = {"flag",
                                    "text",
                                    "text",
                                    "whole number",
                                    "whole number",
                                    "whole number",
                                    "whole number",
                                    "number",
                                    "number",
                                    "range",
                                    "whole numbers",
                                    "texts"};
  static_assert(std::size(kNames) == std::variant_size_v<OptionVariable>);
  return kNames[variable.index()];
}

std::optional<OptionValue> value_of(const OptionVariable& variable) {
  const auto to_value = Overloaded{
      [](int number) { return OptionValue(std::int64_t{number}); },
      [](std::uint64_t number) { return OptionValue(static_cast<std::int64_t>(number)); },
      [](const NumberRange& range) {
        return OptionValue(std::vector<double>{range.first, range.second});
      },
      [](const auto& value) { return OptionValue(value); }};
  const auto of_variable = Overloaded{
      [&]<typename Value>(const std::optional<Value>* value) -> std::optional<OptionValue> {
        return *value ? std::optional(to_value(**value)) : std::nullopt;
      },
      [&](const auto* value) -> std::optional<OptionValue> { return to_value(*value); }};
  return std::visit(of_variable, variable);
}

std::vector<std::string> value_texts(const OptionValue& value) {
  return std::visit(
      [](const auto& one) -> std::vector<std::string> {
        using Value = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return one;
        } else if constexpr (std::is_same_v<Value, std::vector<double>> ||
                             std::is_same_v<Value, std::vector<std::int64_t>>) {
          return mapped(one, [](auto number) { return fmt::format("{}", number); });
        } else {
          return {fmt::format("{}", one)};
        }
      },
      value);
}

std::string set_option(const OptionRow& row, void* options, const OptionValue& value) {
  return std::visit([&](auto* variable) { return take(row, value, *variable); },
                    row.variable(options));
}

void add_rows(std::span<const OptionRow> rows, void* options, CommandParser& parser) {
  for (const OptionRow& row : rows) {
    const OptionVariable variable = row.variable(options);
    const OptionKind kind = kind_of(row, variable);
    parser.add({row.name,
                kind,
                kind == OptionKind::Text ? default_text(variable) : "",
                row.words,
                row.writes,
                row.shared,
                row.arguments});
  }
}

void take_given(std::span<const OptionRow> rows, const CommandParser& parser, void* options) {
  for (const OptionRow& row : rows) {
    const std::string name = row.long_name();
    if (!parser.has(name)) {
      continue;
    }
    const OptionKind kind = kind_of(row, row.variable(options));
    const OptionValue value = kind == OptionKind::Flag   ? OptionValue(true)
                              : kind == OptionKind::Text ? OptionValue(parser.text(name))
                                                         : OptionValue(parser.list(name));
    if (const std::string wrong = set_option(row, options, value); !wrong.empty()) {
      parser.fail(wrong);
    }
  }
}

FileOptions file_options(std::span<const OptionRow> rows) {
  FileOptions files;
  for (const OptionRow& row : rows) {
    add_file_option(row.long_name(), row.words, row.writes, files);
    if (row.arguments != 0) {
      files.inputs.insert(row.long_name());
    }
  }
  return files;
}

}  // namespace stepsim
