#include "sim/report/key_reference.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <regex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/batching/policies/policy_table.h"
#include "sim/scenario/key_table.h"

namespace stepsim {

namespace {

/// Markdown as plain text: no marks of code, and links as their words.
std::string without_markdown(const std::string& text) {
  static const std::regex kLink(R"(\[([^\]]*)\]\([^)]*\))");
  std::string plain = std::regex_replace(text, kLink, "$1");
  std::erase(plain, '`');
  return plain;
}

std::string path_of(const KeyTable& table, const Key& key) {
  return table.path.empty() ? key.name : table.path + "." + key.name;
}

bool is_table(const std::string& path) {
  return std::ranges::any_of(key_tables(),
                             [&](const KeyTable& table) { return table.path == path; });
}

std::string small(std::string text) {
  std::ranges::transform(
      text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::vector<KeyRow> all_rows() {
  std::vector<KeyRow> rows;
  for (const KeyTable& table : key_tables()) {
    for (const Key& key : table.keys) {
      const std::string path = path_of(table, key);
      if (!key.meaning.empty() || !is_table(path)) {
        rows.push_back(
            {path, without_markdown(key.meaning), without_markdown(key.fallback), key.choices});
      }
    }
  }
  return rows;
}

/// The rows of a word; the first of these ways that finds any: the key, a table, a part of a name,
/// a word of a meaning.
std::vector<KeyRow> rows_of(const std::vector<KeyRow>& all, const std::string& word) {
  const std::string wanted = small(word);
  const auto ends_with_key = [&](const KeyRow& row) { return row.key.ends_with("." + wanted); };
  const std::function<bool(const KeyRow&)> ways[] = {
      [&](const KeyRow& row) { return row.key == wanted; },
      [&](const KeyRow& row) { return row.key.starts_with(wanted + "."); },
      ends_with_key,
      [&](const KeyRow& row) { return row.key.find(wanted) != std::string::npos; },
      [&](const KeyRow& row) { return small(row.meaning).find(wanted) != std::string::npos; }};
  for (const auto& way : ways) {
    std::vector<KeyRow> found;
    std::ranges::copy_if(all, std::back_inserter(found), way);
    if (!found.empty()) {
      return found;
    }
  }
  return {};
}

std::string name_of_table(const std::string& path) {
  std::string name = path.empty() ? "scenario file" : path;
  std::ranges::replace(name, '.', '_');
  return name;
}

Json reference_to(const std::string& path) {
  return {{"$ref", "#/$defs/" + name_of_table(path)}};
}

std::vector<std::string> policy_kinds() {
  std::vector<std::string> kinds;
  for (const PolicyFamily& family : policy_families()) {
    for (const PolicyKind& kind : family.kinds) {
      kinds.push_back(kind.name);
    }
  }
  return kinds;
}

/// What a key's value may be, as far as its row tells.
Json value_schema(const std::string& path, const Key& key) {
  if (is_table(path)) {
    // Some tables may come several times, and some have a text that stands for one.
    return {{"anyOf",
             {reference_to(path),
              {{"type", "array"}, {"items", reference_to(path)}},
              {{"type", {"string", "boolean", "number"}}}}}};
  }
  if (path == "policy.kind") {
    return {{"enum", policy_kinds()}};
  }
  if (!key.choices.empty()) {
    return {{"enum", key.choices}};
  }
  switch (key.quantity) {
    case Quantity::Text:
      return {{"type", "string"}};
    case Quantity::Size:
    case Quantity::Time:
    case Quantity::Bandwidth:
      return {{"type", {"string", "number"}}};
    case Quantity::None:
      break;
  }
  return Json::object();
}

Json table_schema(const KeyTable& table) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const Key& key : table.keys) {
    Json one = value_schema(path_of(table, key), key);
    if (!key.meaning.empty()) {
      one["description"] = key.fallback.empty() ? without_markdown(key.meaning)
                                                : fmt::format("{} (default: {})",
                                                              without_markdown(key.meaning),
                                                              without_markdown(key.fallback));
    }
    properties[key.name] = std::move(one);
    if (key.required) {
      required.push_back(key.name);
    }
  }
  Json schema = {
      {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  if (!required.empty()) {
    schema["required"] = std::move(required);
  }
  return schema;
}

}  // namespace

std::vector<KeyRow> key_rows(const std::vector<std::string>& words) {
  const std::vector<KeyRow> all = all_rows();
  std::vector<KeyRow> rows = words.empty() ? all : std::vector<KeyRow>();
  for (const std::string& word : words) {
    const std::vector<KeyRow> found = rows_of(all, word);
    if (found.empty()) {
      std::vector<std::string> known;
      for (const KeyRow& row : all) {
        known.push_back(row.key);
        known.push_back(row.key.substr(row.key.rfind('.') + 1));
      }
      const std::size_t dot = word.rfind('.');
      const std::string advice = dot == std::string::npos
                                     ? advice_for_key("", word)
                                     : advice_for_key(word.substr(0, dot), word.substr(dot + 1));
      throw InputError("{}; all keys: stepsim keys",
                       advice.empty()
                           ? unknown_name("key", word, known)
                           : fmt::format("unknown key '{}'; {}", printable(word), advice));
    }
    rows.insert(rows.end(), found.begin(), found.end());
  }
  return rows;
}

Json scenario_schema() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "A scenario of Stepsim"}};
  Json tables = Json::object();
  for (const KeyTable& table : key_tables()) {
    if (table.path.empty()) {
      schema.update(table_schema(table));
    } else {
      tables[name_of_table(table.path)] = table_schema(table);
    }
  }
  schema["$defs"] = std::move(tables);
  return schema;
}

}  // namespace stepsim
