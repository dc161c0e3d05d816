#pragma once

#include <optional>

namespace stepsim {

/// Errors on data that the fit did not see, as fractions. Absent = could not be estimated.
struct FitErrors {
  std::optional<double> random;  ///< Mean |error|, scattered hold-out.
  std::optional<double> block;   ///< Mean |error|, contiguous block held out.
  std::optional<double>
      beyond;                  ///< Mean |error|, upper half of the sizes predicted from the lower.
  std::optional<double> bias;  ///< Signed error of the sum over the held-out points.

  bool operator==(const FitErrors&) const = default;
};

}  // namespace stepsim
