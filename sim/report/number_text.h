#pragma once

#include <string>

namespace stepsim {

/// "12.3 %"
[[nodiscard]] std::string percent(double fraction);
/// "+12.3 %"
[[nodiscard]] std::string signed_percent(double fraction);
/// "21.15", or "139" from 100 on.
[[nodiscard]] std::string step_ms_text(double ms);
/// "7.39-10.2": the ends of an interval, to three digits and without an exponent.
[[nodiscard]] std::string interval(double low, double high);

}  // namespace stepsim
