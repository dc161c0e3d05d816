#pragma once

#include <span>
#include <vector>

namespace stepsim {

/// How much longer ranks compute that share processor cores than each would on a core of its own.
///
/// All start together, each computes on one core at a time, and the cores go in equal parts to
/// those that still compute: generalised processor sharing.
///
/// Args:
///     seconds: [rank] compute on a core of its own, not negative.
///     cores: At least 1.
/// Returns: [rank] factors of at least 1.
[[nodiscard]] std::vector<double> shared_core_factors(std::span<const double> seconds, int cores);

}  // namespace stepsim
