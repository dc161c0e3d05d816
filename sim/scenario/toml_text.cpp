#include "sim/scenario/toml_text.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

#include "costmodel/base/mapped.h"
#include "costmodel/io/json_lines.h"

namespace stepsim {
namespace {

std::string key_text(const std::string& key) {
  const bool is_bare = !key.empty() && std::ranges::all_of(key, [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '-';
  });
  return is_bare ? key : json_text(key);  // A basic string of TOML is escaped as one of JSON.
}

std::string real_text(double real) {
  std::string text = fmt::format("{}", real);
  const bool is_integer = text.find_first_not_of("-0123456789") == std::string::npos;
  return is_integer ? text + ".0" : text;
}

std::string inline_text(const TomlValue& value) {
  if (value.read_as_text) {
    return json_text(value.override_text);
  }
  switch (value.kind) {
    case TomlValue::Kind::Boolean:
      return value.boolean ? "true" : "false";
    case TomlValue::Kind::Integer:
      return std::to_string(value.integer);
    case TomlValue::Kind::Real:
      return real_text(value.real);
    case TomlValue::Kind::Text:
      return json_text(value.text);
    case TomlValue::Kind::DateTime:
      throw std::invalid_argument("toml_text: a date, which no key of a scenario takes");
    case TomlValue::Kind::List:
      if (value.integers != nullptr) {
        return fmt::format("[{}]", fmt::join(*value.integers, ", "));
      }
      return fmt::format("[{}]", fmt::join(mapped(value.children, inline_text), ", "));
    case TomlValue::Kind::Table:
      return fmt::format("{{ {} }}",
                         fmt::join(mapped(value.children,
                                          [](const TomlValue& member) {
                                            return key_text(member.key) + " = " +
                                                   inline_text(member);
                                          }),
                                   ", "));
  }
  return "";
}

std::string members_text(const TomlValue& table) {
  std::string text;
  for (const TomlValue& member : table.children) {
    text += fmt::format("{} = {}\n", key_text(member.key), inline_text(member));
  }
  return text;
}

bool is_list_of_tables(const TomlValue& value) {
  return value.kind == TomlValue::Kind::List && !value.children.empty() &&
         std::ranges::all_of(value.children, [](const TomlValue& item) {
           return item.kind == TomlValue::Kind::Table;
         });
}

void make_absolute(TomlValue& value, const std::filesystem::path& folder) {
  for (TomlValue& child : value.children) {
    make_absolute(child, folder);
  }
  if (value.kind != TomlValue::Kind::Text || value.text.empty() || value.key == "name" ||
      value.text.find('\0') != std::string::npos) {
    return;
  }
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(
      value.override_key.empty() ? folder / value.text : std::filesystem::path(value.text), error);
  if (!error && std::filesystem::is_regular_file(path, error)) {
    value.text = path.lexically_normal().string();
  }
}

}  // namespace

std::string toml_value_text(const TomlValue& value) {
  return inline_text(value);
}

std::string toml_text(const TomlValue& root) {
  std::string plain;
  std::string headed;
  for (const TomlValue& member : root.children) {
    if (member.kind == TomlValue::Kind::Table) {
      headed += fmt::format("\n[{}]\n{}", key_text(member.key), members_text(member));
    } else if (is_list_of_tables(member)) {
      for (const TomlValue& item : member.children) {
        headed += fmt::format("\n[[{}]]\n{}", key_text(member.key), members_text(item));
      }
    } else {
      plain += fmt::format("{} = {}\n", key_text(member.key), inline_text(member));
    }
  }
  return plain + headed;
}

void make_paths_absolute(TomlDocument& document) {
  make_absolute(document.root, std::filesystem::path(document.file).parent_path());
}

}  // namespace stepsim
