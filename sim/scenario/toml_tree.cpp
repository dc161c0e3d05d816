#include "sim/scenario/toml_tree.h"

#include <algorithm>
#include <tuple>

#include <fmt/core.h>
#include <toml++/toml.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/base/trimmed.h"

namespace stepsim {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::ptrdiff_t kMaxDotsOnALine = 1000;  // Dotted keys nest: keeps recursion shallow.

TomlPlace place_of(const toml::source_position& position) {
  return {static_cast<int>(position.line), static_cast<int>(position.column)};
}

TomlValue converted(const toml::node& node);

TomlValue converted_table(const toml::table& table) {
  TomlValue result;
  result.kind = TomlValue::Kind::Table;
  for (const auto& [key, node] : table) {
    TomlValue child = converted(node);
    child.key = std::string(key.str());
    child.key_place = place_of(key.source().begin);
    result.children.push_back(std::move(child));
  }
  // The library sorts members by name; messages should follow the file.
  const auto position = [](const TomlValue& value) {
    return std::tuple(value.key_place.line, value.key_place.column);
  };
  std::ranges::stable_sort(result.children, {}, position);
  return result;
}

TomlValue converted_list(const toml::array& array) {
  TomlValue result;
  result.kind = TomlValue::Kind::List;
  for (const auto& node : array) {
    result.children.push_back(converted(node));
  }
  return result;
}

TomlValue converted(const toml::node& node) {
  TomlValue result;
  if (const auto* table = node.as_table()) {
    result = converted_table(*table);
  } else if (const auto* array = node.as_array()) {
    result = converted_list(*array);
  } else if (const auto* text = node.as_string()) {
    result.kind = TomlValue::Kind::Text;
    result.text = text->get();
  } else if (const auto* boolean = node.as_boolean()) {
    result.kind = TomlValue::Kind::Boolean;
    result.boolean = boolean->get();
  } else if (const auto* integer = node.as_integer()) {
    result.kind = TomlValue::Kind::Integer;
    result.integer = integer->get();
  } else if (const auto* real = node.as_floating_point()) {
    result.kind = TomlValue::Kind::Real;
    result.real = real->get();
  } else {
    result.kind = TomlValue::Kind::DateTime;
  }
  result.place = place_of(node.source().begin);
  return result;
}

/// "Error while parsing key-value pair: expected value, saw '\n'" -> "expected value, saw '\n'".
std::string reason_of(const toml::parse_error& error) {
  constexpr std::string_view kStart = "Error while parsing ";
  const std::string text(error.description());
  const auto colon = text.find(": ");
  const bool has_start = text.starts_with(kStart) && colon != std::string::npos;
  return printable(has_start ? text.substr(colon + 2) : text);
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') {
      line.remove_suffix(1);
    }
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

SourcePlace source_place(const TomlDocument& document, const TomlPlace& place) {
  SourcePlace result{document.file, place.line, place.column, ""};
  const auto index = static_cast<std::size_t>(place.line) - 1;
  if (place.line > 0 && index < document.lines.size()) {
    result.text = document.lines[index];
  }
  return result;
}

void check_size(const TomlDocument& document, const std::string& text) {
  if (text.size() > kMaxFileBytes) {
    throw InputError(SourcePlace{document.file},
                     "{} bytes are too many for a scenario (at most {})",
                     text.size(),
                     kMaxFileBytes);
  }
  for (std::size_t i = 0; i < document.lines.size(); ++i) {
    const auto& line = document.lines[i];
    if (std::ranges::count(line, '.') > kMaxDotsOnALine) {
      throw InputError({document.file, static_cast<int>(i) + 1, 1, ""},
                       fmt::format("more than {} dots on one line", kMaxDotsOnALine));
    }
  }
}

}  // namespace

const TomlValue* TomlValue::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(children, [&](const TomlValue& child) { return child.key == name; });
  return kind == Kind::Table && found != children.end() ? &*found : nullptr;
}

TomlValue* TomlValue::find(std::string_view name) {
  const auto found =
      std::ranges::find_if(children, [&](const TomlValue& child) { return child.key == name; });
  return kind == Kind::Table && found != children.end() ? &*found : nullptr;
}

std::string_view describe(const TomlValue& value) {
  switch (value.kind) {
    case TomlValue::Kind::Boolean:
      return "a boolean";
    case TomlValue::Kind::Integer:
      return "an integer";
    case TomlValue::Kind::Real:
      return "a real number";
    case TomlValue::Kind::Text:
      return "a string";
    case TomlValue::Kind::DateTime:
      return "a date or time";
    case TomlValue::Kind::List:
      return "a list";
    case TomlValue::Kind::Table:
      return "a table";
  }
  return "a value";
}

TomlDocument parse_toml(const std::string& text, const std::string& file) {
  TomlDocument document{file, split_lines(text), {}};
  check_size(document, text);
  if (const std::size_t first = text.find_first_not_of(" \t\r\n");
      first != std::string::npos && text[first] == '{') {
    throw InputError(SourcePlace{file},
                     "is JSON, not a scenario (TOML); stepsim advise makes a scenario of run "
                     "records");
  }
  try {
    const toml::table table = toml::parse(text, file);
    document.root = converted_table(table);
  } catch (const toml::parse_error& error) {
    if (parse_number<double>(trimmed(document.lines.front()))) {
      throw InputError(SourcePlace{file},
                       "is a list of numbers, not a scenario (TOML); stepsim lengths --file "
                       "describes the lengths of samples");
    }
    throw InputError(source_place(document, place_of(error.source().begin)),
                     fmt::format("not valid TOML: {}", reason_of(error)));
  }
  return document;
}

std::optional<TomlValue> parse_toml_value(const std::string& text) {
  if (text.find('\n') != std::string::npos || std::ranges::count(text, '.') > kMaxDotsOnALine) {
    return std::nullopt;
  }
  try {
    const toml::table table = toml::parse("value = " + text);
    TomlValue root = converted_table(table);
    return root.children.size() == 1 ? std::optional(root.children.front()) : std::nullopt;
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

void fail_at(const TomlDocument& document,
             const TomlValue& value,
             TomlAt at,
             const std::string& path,
             const std::string& message,
             Lookup lookup) {
  if (!value.override_key.empty()) {
    // The command line already names the key, unless the fault is deeper inside its value.
    const bool named = at == TomlAt::Key || path.empty() || path == value.override_key;
    const std::string place =
        at == TomlAt::Key ? value.override_key : value.override_key + "=" + value.override_text;
    throw InputError(SourcePlace{value.override_option + " " + place},
                     named ? message : path + ": " + message,
                     lookup);
  }
  const TomlPlace& place = at == TomlAt::Key ? value.key_place : value.place;
  throw InputError(source_place(document, place),
                   path.empty() ? message : printable(path) + ": " + message,
                   lookup);
}

}  // namespace stepsim
