#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stepsim {

/// Seconds since 1970 of an ISO 8601 time in UTC, "2026-11-20T19:37:25Z"; fractions of a second are
/// dropped, and "+00:00" or nothing may stand for the Z. None for any other text.
[[nodiscard]] std::optional<std::int64_t> parse_utc(std::string_view text);

/// "2026-11-20T19:37:25Z"
[[nodiscard]] std::string utc_text(std::int64_t seconds);

}  // namespace stepsim
