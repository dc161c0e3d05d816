#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stepsim {

/// Reads an ISO 8601 time in UTC, "2026-11-20T19:37:25Z", as seconds since 1970. Fractions of a
/// second are dropped, and "+00:00" or nothing may stand for the Z. Absent for any other text.
[[nodiscard]] std::optional<std::int64_t> parse_utc(std::string_view text);

/// Writes seconds since 1970 as ISO 8601 in UTC: "2026-11-20T19:37:25Z".
[[nodiscard]] std::string utc_text(std::int64_t seconds);

/// The time now, as utc_text() writes it.
[[nodiscard]] std::string utc_now();

}  // namespace stepsim
