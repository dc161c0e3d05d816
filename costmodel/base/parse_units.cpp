#include "costmodel/base/parse_units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/trimmed.h"

namespace stepsim {
namespace {

using Unit = std::pair<std::string_view, double>;

constexpr std::array<Unit, 6> kByteUnits = {{{"", 1},
                                             {"B", 1},
                                             {"KiB", 1024},
                                             {"MiB", 1048576},
                                             {"GiB", 1073741824},
                                             {"TiB", 1099511627776}}};
constexpr double kFewBytes = 1024;  // Fewer need a unit.

constexpr std::array<Unit, 5> kTimeUnits = {
    {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}}};

constexpr std::array<Unit, 12> kBandwidthUnits = {{{"B/s", 1},
                                                   {"kB/s", 1e3},
                                                   {"MB/s", 1e6},
                                                   {"GB/s", 1e9},
                                                   {"TB/s", 1e12},
                                                   {"KiB/s", 1024},
                                                   {"MiB/s", 1048576},
                                                   {"GiB/s", 1073741824},
                                                   {"TiB/s", 1099511627776},
                                                   {"Mbit/s", 1e6 / 8},
                                                   {"Gbit/s", 1e9 / 8},
                                                   {"Tbit/s", 1e12 / 8}}};

/// Splits "25 MiB" into (25, "MiB"). Messages show `example` as a valid text.
std::pair<double, std::string_view> number_and_unit(std::string_view text,
                                                    std::string_view example) {
  const std::string_view whole = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), value);
  if (error != std::errc() || !std::isfinite(value)) {
    throw InputError("'{}' is not a {}", printable(text), example);
  }
  if (value < 0) {
    throw InputError("'{}' is negative", printable(text));
  }
  return {value, trimmed(whole.substr(static_cast<std::size_t>(end - whole.data())))};
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const auto [value, unit] = number_and_unit(text, "size such as 25 MiB");
  for (const auto& [name, factor] : kByteUnits) {
    if (name != unit) {
      continue;
    }
    const double bytes = value * factor;
    if (bytes > 0x1p62) {
      throw InputError("'{}' is larger than 4 EiB", printable(text));
    }
    if (factor == 1 && std::floor(bytes) != bytes) {
      throw InputError("'{}' is not a whole number of bytes", printable(text));
    }
    if (unit.empty() && bytes > 0 && bytes < kFewBytes) {
      throw InputError(
          "{0:.0f} without a unit counts bytes; did you mean \"{0:.0f} MiB\"? "
          "Write \"{0:.0f} B\" if it is bytes",
          bytes);
    }
    return Bytes(std::llround(bytes));
  }
  throw InputError("unknown unit '{}'; use KiB, MiB, GiB or bytes without unit", printable(unit));
}

double parse_seconds(std::string_view text) {
  const auto [value, unit] = number_and_unit(text, "time such as 3 ms");
  for (const auto& [name, factor] : kTimeUnits) {
    if (name == unit) {
      if (value * factor > 9.2e9) {
        throw InputError("'{}' is longer than 292 years", printable(text));
      }
      return value * factor;
    }
  }
  if (unit.empty()) {
    throw InputError("'{}' has no unit; use ns, us, ms, s or min", printable(text));
  }
  throw InputError("unknown unit '{}'; use ns, us, ms, s or min", printable(unit));
}

Duration parse_duration(std::string_view text) {
  return to_duration(parse_seconds(text));
}

double parse_bandwidth(std::string_view text) {
  const auto [value, unit] = number_and_unit(text, "bandwidth such as 150 GB/s");
  for (const auto& [name, factor] : kBandwidthUnits) {
    if (name == unit) {
      return value * factor;
    }
  }
  if (unit.empty()) {
    throw InputError("'{}' has no unit; use a unit such as MB/s, GB/s, GiB/s or Gbit/s",
                     printable(text));
  }
  throw InputError("unknown unit '{}'; use a unit such as MB/s, GB/s, GiB/s or Gbit/s",
                   printable(unit));
}

std::string format_bytes(Bytes bytes) {
  const auto value = static_cast<double>(bytes.value());
  const auto* unit = &kByteUnits[1];
  for (std::size_t i = 2; i < kByteUnits.size(); ++i) {
    if (std::abs(value) >= kByteUnits[i].second) {
      unit = &kByteUnits[i];
    }
  }
  const double scaled = value / unit->second;
  if (std::floor(scaled) == scaled) {
    return fmt::format("{:.0f} {}", scaled, unit->first);
  }
  return fmt::format("{:.2f} {}", scaled, unit->first);
}

std::string exact_bytes(Bytes bytes) {
  const std::string text = format_bytes(bytes);
  return parse_bytes(text) == bytes ? text : fmt::format("{} B", bytes.value());
}

std::string format_duration(double seconds) {
  if (seconds == 0 || !std::isfinite(seconds)) {
    return fmt::format("{} s", seconds);
  }
  std::string result;
  for (const auto& [unit, factor] : kTimeUnits) {
    const double scaled = seconds / factor;
    result = fmt::format("{:.{}f} {}", scaled, std::abs(scaled) < 9.9995 ? 3 : 1, unit);
    if (std::abs(scaled) < 999.95) {
      return result;
    }
  }
  constexpr double kHour = 3600;
  constexpr double kDay = 24 * kHour;
  const double days = std::abs(seconds) / kDay;
  return days < 10    ? fmt::format("{:.1f} h", seconds / kHour)
         : days < 1e5 ? fmt::format("{:.0f} days", seconds / kDay)
                      : fmt::format("{:.3g} s", seconds);
}

}  // namespace stepsim
