#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "costmodel/base/mapped.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/stage.h"
#include "sim/scenario/toml_reader.h"

namespace stepsim {

/// What a key's value is: a text, or a number with a unit, which the file writes behind it. As data
/// these are bytes, seconds, and bytes per second.
enum class Quantity { None, Text, Size, Time, Bandwidth };

/// One key of a table of the scenario file. Its row reads the key, checks it and documents it.
struct Key {
  using Read = std::function<void(const TomlReader& table, Scenario& scenario)>;

  std::string name;
  std::string meaning;   ///< The cell "value" of the key's row in scenarios/README.md, in Markdown.
  std::string fallback;  ///< The cell "default" of that row; empty where the key is required.
  Read read;             ///< Called when the file has the key; empty: the table's reader reads it.
  bool required = false;
  std::vector<std::string> choices;  ///< The texts that the key takes; empty: it is not a choice.
  /// The first stage that depends on the key: those before it are the same, whatever its value is.
  /// Empty: the first of all.
  std::optional<Stage> touches = {};
  Quantity quantity = Quantity::None;
};

/// A field of the scenario, to be read from a key: a function from Scenario& to the field.
template <typename Value>
[[nodiscard]] auto field(Value Scenario::*member) {
  return [member](Scenario& scenario) -> Value& { return scenario.*member; };
}
template <typename Owner, typename Value>
[[nodiscard]] auto field(Owner Scenario::*owner, Value Owner::*member) {
  return [owner, member](Scenario& scenario) -> Value& { return scenario.*owner.*member; };
}
template <typename Field>
using FieldValue = std::remove_cvref_t<std::invoke_result_t<Field, Scenario&>>;

/// Defaults as the documentation writes them: `true`, `25`, `"25 MiB"`, `"auto"`.
[[nodiscard]] std::string documented(bool value);
[[nodiscard]] std::string documented(std::int64_t value);
[[nodiscard]] std::string documented(double value);
[[nodiscard]] std::string documented(Bytes value);
[[nodiscard]] std::string documented(const std::string& value);

/// The field's value in a scenario that says nothing, unless the row states its default.
template <typename Field>
[[nodiscard]] std::string default_of(const Field& field, const std::string& stated) {
  if (!stated.empty()) {
    return stated;
  }
  Scenario scenario;
  if constexpr (std::is_integral_v<FieldValue<Field>> && !std::is_same_v<FieldValue<Field>, bool>) {
    return documented(static_cast<std::int64_t>(field(scenario)));
  } else if constexpr (requires { documented(field(scenario)); }) {
    return documented(field(scenario));
  }
  return stated;
}

/// The range of a whole number, both ends included.
struct IntegerRange {
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

/// The values that a real number may have, and how messages call them.
struct NumberRange {
  bool (*holds)(double value) = nullptr;
  std::string expected;
};
[[nodiscard]] NumberRange fraction();         ///< 0 to 1, both included.
[[nodiscard]] NumberRange slowdown();         ///< 0 (nothing) to 100.
[[nodiscard]] NumberRange positive_number();  ///< More than 0.

/// The number of a key. Raises InputError where it is outside of the range.
[[nodiscard]] double read_number(const TomlReader& table,
                                 const std::string& key,
                                 const NumberRange& range);

/// Rows by type. A stated `fallback` takes the place of the field's own default.

template <typename Field>
[[nodiscard]] Key flag(const std::string& name, Field field, const std::string& meaning) {
  return {name,
          meaning,
          default_of(field, ""),
          [=](const TomlReader& table, Scenario& s) { field(s) = table.boolean_or(name, false); },
          false,
          {},
          {}};
}

template <typename Field>
[[nodiscard]] Key integer(const std::string& name,
                          Field field,
                          IntegerRange range,
                          const std::string& meaning,
                          const std::string& fallback = {}) {
  const auto read = [=](const TomlReader& table, Scenario& s) {
    const std::int64_t value = table.integer(name, range.least, range.most);
    if constexpr (std::is_integral_v<FieldValue<Field>>) {
      field(s) = static_cast<FieldValue<Field>>(value);
    } else {
      field(s) = static_cast<typename FieldValue<Field>::value_type>(value);
    }
  };
  return {name, meaning, default_of(field, fallback), read, false, {}, {}};
}

template <typename Field>
[[nodiscard]] Key number(const std::string& name,
                         Field field,
                         const NumberRange& range,
                         const std::string& meaning,
                         const std::string& fallback = {}) {
  const auto read = [=](const TomlReader& table, Scenario& s) {
    field(s) = read_number(table, name, range);
  };
  return {name, meaning, default_of(field, fallback), read, false, {}, {}};
}

/// A time such as "3 ms", into a Duration or into seconds.
template <typename Field>
[[nodiscard]] Key duration(const std::string& name,
                           Field field,
                           const std::string& meaning,
                           const std::string& fallback = "0") {
  const auto read = [=](const TomlReader& table, Scenario& s) {
    if constexpr (std::is_same_v<FieldValue<Field>, double>) {
      field(s) = to_seconds(table.duration(name));
    } else {
      field(s) = table.duration(name);
    }
  };
  return {name, meaning, fallback, read, false, {}, {}, Quantity::Time};
}

template <typename Field>
[[nodiscard]] Key size(const std::string& name, Field field, const std::string& meaning) {
  const auto read = [=](const TomlReader& table, Scenario& s) { field(s) = table.bytes(name); };
  return {name, meaning, default_of(field, ""), read, false, {}, {}, Quantity::Size};
}

/// A bandwidth such as "20 GB/s", in bytes per second; 0 stands for no time.
template <typename Field>
[[nodiscard]] Key bandwidth(const std::string& name,
                            Field field,
                            const std::string& meaning,
                            const std::string& fallback) {
  const auto read = [=](const TomlReader& table, Scenario& s) { field(s) = table.bandwidth(name); };
  return {name, meaning, fallback, read, false, {}, {}, Quantity::Bandwidth};
}

template <typename Field>
[[nodiscard]] Key text(const std::string& name,
                       Field field,
                       const std::string& meaning,
                       const std::string& fallback) {
  const auto read = [=](const TomlReader& table, Scenario& s) { field(s) = table.text(name); };
  return {name, meaning, fallback, read, false, {}, {}, Quantity::Text};
}

/// A text that a key takes, and what it stands for.
template <typename Value>
using NamedValue = std::pair<std::string, Value>;

/// One of several texts.
template <typename Field>
[[nodiscard]] Key choice(const std::string& name,
                         Field field,
                         const std::vector<NamedValue<FieldValue<Field>>>& choices,
                         const std::string& meaning) {
  const std::vector<std::string> texts =
      mapped(choices, [](const auto& choice) { return choice.first; });
  const auto read = [=](const TomlReader& table, Scenario& s) {
    const std::string chosen = read_choice(table, name, "", texts);
    field(s) = std::ranges::find(choices, chosen, &NamedValue<FieldValue<Field>>::first)->second;
  };
  Scenario defaults;
  const auto own =
      std::ranges::find(choices, field(defaults), &NamedValue<FieldValue<Field>>::second);
  return {name, meaning, documented(own->first), read, false, texts, {}, Quantity::Text};
}

/// A key that only its own reader understands.
[[nodiscard]] Key custom(const std::string& name,
                         const Key::Read& read,
                         const std::string& meaning,
                         const std::string& fallback);

/// A key that the reader of its table reads together with others.
[[nodiscard]] Key described(const std::string& name,
                            const std::string& meaning,
                            const std::string& fallback);

/// Makes the key a required one, without a default.
[[nodiscard]] Key required(Key key);

/// Says what the key's values are.
[[nodiscard]] Key holding(Quantity quantity, Key key);

/// Says which stage a key touches first.
[[nodiscard]] Key touching(Stage first, Key key);
/// Says it of those keys that do not say it themselves.
[[nodiscard]] std::vector<Key> touching(Stage first, std::vector<Key> keys);

}  // namespace stepsim
