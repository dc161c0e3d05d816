#pragma once

#include <string>

namespace stepsim {

/// The wall clock now, ISO 8601 in UTC: "2024-05-01T12:30:00Z".
[[nodiscard]] std::string utc_now();

}  // namespace stepsim
