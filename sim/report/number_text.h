#pragma once

#include <string>

namespace stepsim {

/// "12.3 %"
[[nodiscard]] std::string percent(double fraction);
/// "+12.3 %"
[[nodiscard]] std::string signed_percent(double fraction);
/// "21.15", or "139" from 100 on.
[[nodiscard]] std::string step_ms_text(double ms);
/// A mean with the digits that its interval carries: to a tenth of the order of the interval's
/// width, and three digits at least. "24.1" of 16 to 34, "136.5" of 136 to 137.
///
/// Args:
///     width: Of the interval; 0: there is none, and the mean has three decimals.
[[nodiscard]] std::string mean_text(double value, double width);
/// "7.39-10.2": the ends of an interval, to three digits and without an exponent.
[[nodiscard]] std::string interval(double low, double high);
/// "0.2596", "64.1", "12345" with four digits: whole from there on, and without an exponent.
[[nodiscard]] std::string figure_text(double value, int digits);
/// "18.4 min", "7.21 h", "12.3 days"
[[nodiscard]] std::string hours_text(double hours);
/// "41.2 TFLOP/s", "831 GFLOP/s"
[[nodiscard]] std::string flops_per_second_text(double flops);
/// "523 MiB", "41.2 GiB"
[[nodiscard]] std::string memory_text(double mib);

}  // namespace stepsim
