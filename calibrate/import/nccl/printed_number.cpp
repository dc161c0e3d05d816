#include "calibrate/import/nccl/printed_number.h"

#include <charconv>
#include <cmath>
#include <string>

namespace stepsim {
namespace {

/// Digits from `at` on; moves `at` behind them.
std::size_t take_digits(std::string_view token, std::size_t* at) {
  const std::size_t first = *at;
  while (*at < token.size() && is_digit(token[*at])) {
    ++*at;
  }
  return *at - first;
}

}  // namespace

std::optional<PrintedNumber> parse_printed(std::string_view token, int power) {
  constexpr std::size_t kLongest = 40;
  if (token.empty() || token.size() > kLongest) {
    return std::nullopt;
  }
  std::size_t at = token[0] == '-' ? 1 : 0;
  const std::size_t whole = take_digits(token, &at);
  int decimals = 0;
  if (at < token.size() && token[at] == '.') {
    ++at;
    decimals = static_cast<int>(take_digits(token, &at));
  }
  if (whole == 0) {
    return std::nullopt;
  }
  const std::string_view mantissa = token.substr(0, at);
  int exponent = 0;
  if (at < token.size() && (token[at] == 'e' || token[at] == 'E')) {
    ++at;
    at += at < token.size() && token[at] == '+' ? 1 : 0;
    const auto end = std::from_chars(token.data() + at, token.data() + token.size(), exponent);
    if (end.ec != std::errc() || std::abs(exponent) > 300) {
      return std::nullopt;
    }
    at = static_cast<std::size_t>(end.ptr - token.data());
  }
  if (at != token.size()) {
    return std::nullopt;
  }
  exponent += power;
  const std::string text = std::string(mantissa) + "e" + std::to_string(exponent);
  PrintedNumber number;
  std::from_chars(text.data(), text.data() + text.size(), number.value);
  number.half_unit = 0.5 * std::pow(10.0, exponent - decimals);
  return number;
}

}  // namespace stepsim
