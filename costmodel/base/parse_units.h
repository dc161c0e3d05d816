#pragma once

#include <string>
#include <string_view>

#include "costmodel/base/units.h"

namespace stepsim {

/// "25 MiB", "1GiB", "512" (bytes), "1.5 KiB". Binary units only: MB is refused with the reason.
/// Raises InputError (message only; the caller knows the place).
[[nodiscard]] Bytes parse_bytes(std::string_view text);

/// "3 ms", "20us", "1.5 s", "100 ns", "5 min".
[[nodiscard]] Duration parse_duration(std::string_view text);

/// Bytes per second: "150 GB/s", "100 Gbit/s", "12.5 GiB/s"; kB, MB, GB, TB are powers of ten, KiB,
/// MiB, GiB, TiB powers of two.
[[nodiscard]] double parse_bandwidth(std::string_view text);

/// "25 MiB", "1.65 MB"-like human forms for tables: binary units, exact when whole.
[[nodiscard]] std::string format_bytes(Bytes bytes);

/// "1.234 ms", "56.7 us": three significant digits and more, unit chosen.
[[nodiscard]] std::string format_duration(double seconds);

}  // namespace stepsim
