#pragma once

#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/units.h"
#include "costmodel/io/json_file.h"

namespace stepsim {

// Values as JSON on one line from which every bit that matters is read back: a struct is the array
// of its members. It is for files and messages between processes of one version of Stepsim, whose
// structs are the same; nobody else reads it.
//
// A struct takes part by a function members(value), which returns std::tie() of all of them
// (prediction_members.h).

/// Holds for T and const T, so that one members() serves reading and writing.
template <typename T, typename Of>
concept Is = std::same_as<std::remove_const_t<T>, Of>;

/// Makes members() of a plain struct from the list of all its members, in their order. A structured
/// binding must name every member, so that one that is added and not listed does not compile.
#define STEPSIM_MEMBERS(Type, ...)     \
  auto members(Is<Type> auto& value) { \
    auto& [__VA_ARGS__] = value;       \
    return std::tie(__VA_ARGS__);      \
  }

/// Formats bytes as a JSON string; those that are no UTF-8 as {"hex": "…"}.
[[nodiscard]] std::string exact_string(const std::string& value);
/// Raises InputError: the value was not made by exact_string().
[[nodiscard]] std::string read_exact_string(const Json& value);

/// Raises InputError: the value does not fit the struct that is read.
[[noreturn]] void refuse_exact();

namespace exact {

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsPair : std::false_type {};
template <typename A, typename B>
struct IsPair<std::pair<A, B>> : std::true_type {};
template <typename T>
struct IsVariant : std::false_type {};
template <typename... T>
struct IsVariant<std::variant<T...>> : std::true_type {};
template <typename T>
struct IsCount : std::false_type {};
template <typename Tag>
struct IsCount<Count<Tag>> : std::true_type {};

}  // namespace exact

/// Appends the value to `text`. Doubles read back unchanged, infinities and NaN included (of a NaN
/// only that it is one).
template <typename T>
void write_exact(const T& value, std::string& text) {
  const auto list = [&text](const auto&... elements) {
    text += '[';
    bool first = true;
    [[maybe_unused]] const auto one = [&](const auto& element) {
      text += first ? "" : ",";
      first = false;
      write_exact(element, text);
    };
    (one(elements), ...);
    text += ']';
  };
  if constexpr (std::is_same_v<T, bool>) {
    text += value ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    write_exact(static_cast<std::int64_t>(value), text);
  } else if constexpr (std::is_integral_v<T>) {
    fmt::format_to(std::back_inserter(text), "{}", value);
  } else if constexpr (std::is_same_v<T, double>) {
    if (std::isnan(value)) {
      text += "\"nan\"";
    } else if (std::isinf(value)) {
      text += value > 0 ? "\"inf\"" : "\"-inf\"";
    } else {
      // The whole number -0 would lose its sign.
      text += value == 0 && std::signbit(value) ? "-0.0" : fmt::format("{}", value);
    }
  } else if constexpr (std::is_same_v<T, std::string>) {
    text += exact_string(value);
  } else if constexpr (std::is_same_v<T, SimTime>) {
    write_exact(value.time_since_epoch().count(), text);
  } else if constexpr (std::is_same_v<T, Duration>) {
    write_exact(value.count(), text);
  } else if constexpr (exact::IsCount<T>::value) {
    write_exact(value.value(), text);
  } else if constexpr (exact::IsOptional<T>::value) {
    if (value) {
      list(*value);
    } else {
      text += "null";
    }
  } else if constexpr (exact::IsVector<T>::value) {
    text += '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      text += i > 0 ? "," : "";
      write_exact(value[i], text);
    }
    text += ']';
  } else if constexpr (exact::IsPair<T>::value) {
    list(value.first, value.second);
  } else if constexpr (exact::IsVariant<T>::value) {
    std::visit([&](const auto& held) { list(value.index(), held); }, value);
  } else {
    std::apply(list, members(value));
  }
}

template <typename T>
void read_exact(const Json& json, T& value);

namespace exact {

inline const Json& elements(const Json& json, std::size_t count) {
  if (!json.is_array() || json.size() != count) {
    refuse_exact();
  }
  return json;
}

template <typename T>
T whole(const Json& json) {
  if (!json.is_number_integer()) {
    refuse_exact();
  }
  if (json.is_number_unsigned() ? !std::in_range<T>(json.get<std::uint64_t>())
                                : !std::in_range<T>(json.get<std::int64_t>())) {
    refuse_exact();
  }
  return json.get<T>();
}

inline double real(const Json& json) {
  if (json.is_number()) {
    return json.get<double>();
  }
  if (json == "nan") {
    return std::nan("");
  }
  if (json == "inf" || json == "-inf") {
    return json == "inf" ? HUGE_VAL : -HUGE_VAL;
  }
  refuse_exact();
}

/// Makes the variant hold its alternative of this number, and reads that.
template <std::size_t from = 0, typename... T>
void read_alternative(std::size_t number, const Json& json, std::variant<T...>& value) {
  if constexpr (from < sizeof...(T)) {
    if (number == from) {
      read_exact(json, value.template emplace<from>());
    } else {
      read_alternative<from + 1>(number, json, value);
    }
  } else {
    refuse_exact();
  }
}

}  // namespace exact

/// Reads what write_exact() has written. Raises InputError: it is something else.
template <typename T>
void read_exact(const Json& json, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) {
      refuse_exact();
    }
    value = json.get<bool>();
  } else if constexpr (std::is_enum_v<T>) {
    value = static_cast<T>(exact::whole<std::underlying_type_t<T>>(json));
  } else if constexpr (std::is_integral_v<T>) {
    value = exact::whole<T>(json);
  } else if constexpr (std::is_same_v<T, double>) {
    value = exact::real(json);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = read_exact_string(json);
  } else if constexpr (std::is_same_v<T, SimTime>) {
    value = SimTime(Duration(exact::whole<std::int64_t>(json)));
  } else if constexpr (std::is_same_v<T, Duration>) {
    value = Duration(exact::whole<std::int64_t>(json));
  } else if constexpr (exact::IsCount<T>::value) {
    value = T(exact::whole<std::int64_t>(json));
  } else if constexpr (exact::IsOptional<T>::value) {
    if (json.is_null()) {
      value.reset();
    } else {
      read_exact(exact::elements(json, 1)[0], value.emplace());
    }
  } else if constexpr (exact::IsVector<T>::value) {
    if (!json.is_array()) {
      refuse_exact();
    }
    value.assign(json.size(), {});
    for (std::size_t i = 0; i < value.size(); ++i) {
      read_exact(json[i], value[i]);
    }
  } else if constexpr (exact::IsPair<T>::value) {
    read_exact(exact::elements(json, 2)[0], value.first);
    read_exact(json[1], value.second);
  } else if constexpr (exact::IsVariant<T>::value) {
    exact::read_alternative(exact::whole<std::size_t>(exact::elements(json, 2)[0]), json[1], value);
  } else {
    const auto all = members(value);
    exact::elements(json, std::tuple_size_v<decltype(all)>);
    [[maybe_unused]] std::size_t next = 0;
    std::apply([&](auto&... member) { (read_exact(json[next++], member), ...); }, all);
  }
}

template <typename T>
[[nodiscard]] std::string exact_text(const T& value) {
  std::string text;
  write_exact(value, text);
  return text;
}

/// Raises InputError: the text is not JSON, or no T of this version of Stepsim.
template <typename T>
[[nodiscard]] T from_exact_text(const std::string& text) {
  T value;
  read_exact(parse_json(text, "result of a point"), value);
  return value;
}

}  // namespace stepsim
