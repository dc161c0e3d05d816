#pragma once

#include <string>
#include <string_view>

#include "costmodel/base/units.h"

namespace stepsim {

/// Parses "25 MiB", "1GiB", "4096" (bytes), "512 B" or "1.5 KiB". Units are binary; MB is refused
/// with the reason. So is a number without a unit between 0 and 1024, which PyTorch's
/// bucket_cap_mb=25 makes people write for 25 MiB. All parsers here raise InputError with a message
/// only, since the caller knows the place.
[[nodiscard]] Bytes parse_bytes(std::string_view text);

/// Parses "3 ms", "20us", "1.5 s", "2.5 ns" or "5 min" into seconds.
[[nodiscard]] double parse_seconds(std::string_view text);

/// parse_duration() does the same, and rounds to whole nanoseconds.
[[nodiscard]] Duration parse_duration(std::string_view text);

/// Parses "150 GB/s", "100 Gbit/s" or "12.5 GiB/s" into bytes per second. kB, MB, GB and TB are
/// powers of ten; KiB, MiB, GiB and TiB are powers of two.
[[nodiscard]] double parse_bandwidth(std::string_view text);

/// Formats bytes for tables in binary units, "25 MiB"; exact when the value is a whole number of
/// the unit.
[[nodiscard]] std::string format_bytes(Bytes bytes);
/// Formats bytes so that parse_bytes() reads the same number back: "25 MiB", "400001 B".
[[nodiscard]] std::string exact_bytes(Bytes bytes);

/// Formats seconds for tables in a fitting unit, with at least three significant digits:
/// "1.234 ms", "56.7 us"; long ones in hours or days, absurd ones as "1e+18 s".
[[nodiscard]] std::string format_duration(double seconds);

}  // namespace stepsim
