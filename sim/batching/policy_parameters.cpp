#include "sim/batching/policy_parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/batching/lengths.h"

namespace stepsim {
namespace {

using Type = PolicyParameter::Type;

PolicyParameter parameter(std::string name, Type type) {
  PolicyParameter result;
  result.name = std::move(name);
  result.type = type;
  return result;
}

std::string printed(const PolicyValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) {
    return *flag ? "true" : "false";
  }
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    return fmt::format("{}", *integer);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return fmt::format("{}", *number);
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    return fmt::format("\"{}\"", *text);
  }
  return fmt::format("[{}]", fmt::join(std::get<std::vector<std::int64_t>>(value), ", "));
}

bool has_type(const PolicyValue& value, Type type) {
  return value.index() == static_cast<std::size_t>(type) ||
         (type == Type::Number && std::holds_alternative<std::int64_t>(value)) ||
         (type == Type::File && std::holds_alternative<std::string>(value));
}

const char* type_name(Type type) {
  constexpr std::array kNames = {
      "true or false", "an integer", "a number", "a text", "a list of integers", "a path"};
  return kNames.at(static_cast<std::size_t>(type));
}

void check_integer(const PolicyParameter& known, std::int64_t value) {
  if (value < known.least || value > kMaxSampleLength) {
    throw InputError(
        value < known.least
            ? fmt::format(
                  "{}: {} is too small; expected at least {}", known.name, value, known.least)
            : fmt::format(
                  "{}: {} is too large; expected at most {}", known.name, value, kMaxSampleLength));
  }
}

void check_value(const PolicyParameter& known, const PolicyValue& value) {
  if (!has_type(value, known.type)) {
    throw InputError("{}: expected {}", known.name, type_name(known.type));
  }
  if (known.type == Type::Integer) {
    check_integer(known, std::get<std::int64_t>(value));
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (const std::int64_t item : *list) {
      check_integer(known, item);
    }
  }
  if (const auto* number = std::get_if<double>(&value);
      number != nullptr && !(*number > 0 && std::isfinite(*number))) {
    throw InputError("{}: {} is no finite number above 0", known.name, *number);
  }
  if (const auto* text = std::get_if<std::string>(&value);
      text != nullptr && known.type == Type::Text &&
      std::ranges::find(known.choices, *text) == known.choices.end()) {
    throw InputError(known.name + ": " + unknown_name("value", *text, known.choices));
  }
}

}  // namespace

PolicyParameter required_integer(std::string name, std::int64_t least) {
  PolicyParameter result = parameter(std::move(name), Type::Integer);
  result.required = true;
  result.least = least;
  return result;
}

PolicyParameter integer_or(std::string name, std::int64_t fallback, std::int64_t least) {
  PolicyParameter result = parameter(std::move(name), Type::Integer);
  result.fallback = fallback;
  result.least = least;
  return result;
}

PolicyParameter optional_integer(std::string name, std::int64_t least) {
  PolicyParameter result = parameter(std::move(name), Type::Integer);
  result.least = least;
  return result;
}

PolicyParameter required_number(std::string name) {
  PolicyParameter result = parameter(std::move(name), Type::Number);
  result.required = true;
  return result;
}

PolicyParameter number_or(std::string name, double fallback) {
  PolicyParameter result = parameter(std::move(name), Type::Number);
  result.fallback = fallback;
  return result;
}

PolicyParameter optional_number(std::string name) {
  return parameter(std::move(name), Type::Number);
}

PolicyParameter flag_or(std::string name, bool fallback) {
  PolicyParameter result = parameter(std::move(name), Type::Flag);
  result.fallback = fallback;
  return result;
}

PolicyParameter choice(std::string name, std::vector<std::string> choices) {
  PolicyParameter result = parameter(std::move(name), Type::Text);
  result.fallback = choices.front();
  result.choices = std::move(choices);
  return result;
}

PolicyParameter required_file(std::string name) {
  PolicyParameter result = parameter(std::move(name), Type::File);
  result.required = true;
  return result;
}

PolicyParameter required_integers(std::string name) {
  PolicyParameter result = parameter(std::move(name), Type::Integers);
  result.required = true;
  return result;
}

PolicyParameter optional_integers(std::string name) {
  return parameter(std::move(name), Type::Integers);
}

std::string describe(const PolicyParameter& parameter) {
  if (parameter.fallback) {
    return parameter.name + " = " + printed(*parameter.fallback);
  }
  return parameter.required ? parameter.name : parameter.name + " (may be left out)";
}

std::string names_of(std::span<const PolicyParameter> parameters) {
  const auto names = mapped(parameters, &PolicyParameter::name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::int64_t PolicyParameters::integer(const std::string& name) const {
  return std::get<std::int64_t>(values_.at(name));
}

double PolicyParameters::number(const std::string& name) const {
  const PolicyValue& value = values_.at(name);
  const auto* integer = std::get_if<std::int64_t>(&value);
  return integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
}

bool PolicyParameters::flag(const std::string& name) const {
  return std::get<bool>(values_.at(name));
}

const std::string& PolicyParameters::text(const std::string& name) const {
  return std::get<std::string>(values_.at(name));
}

const std::vector<std::int64_t>& PolicyParameters::integers(const std::string& name) const {
  return std::get<std::vector<std::int64_t>>(values_.at(name));
}

std::optional<std::int64_t> PolicyParameters::maybe_integer(const std::string& name) const {
  return has(name) ? std::optional(integer(name)) : std::nullopt;
}

std::optional<double> PolicyParameters::maybe_number(const std::string& name) const {
  return has(name) ? std::optional(number(name)) : std::nullopt;
}

PolicyParameters PolicyParameters::completed(const std::string& kind,
                                             std::span<const PolicyParameter> known) const {
  for (const auto& [name, value] : values_) {
    const auto is_named = [&name = name](const PolicyParameter& one) { return one.name == name; };
    if (std::ranges::none_of(known, is_named)) {
      throw InputError(
          fmt::format(
              "{} does not apply to policy kind '{}'; it takes: {}", name, kind, names_of(known)),
          Lookup::Policies);
    }
  }
  PolicyParameters result = *this;
  for (const auto& one : known) {
    if (has(one.name)) {
      check_value(one, values_.at(one.name));
    } else if (one.required) {
      throw InputError(
          fmt::format("policy kind '{}' needs {}{}",
                      kind,
                      one.name,
                      one.type == Type::Integer ? fmt::format(" (at least {})", one.least) : ""),
          Lookup::Policies);
    } else if (one.fallback) {
      result.set(one.name, *one.fallback);
    }
  }
  return result;
}

}  // namespace stepsim
