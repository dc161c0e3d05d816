#pragma once

#include <span>
#include <vector>

namespace stepsim {

/// Returns how much longer each rank computes when the ranks share processor cores than it would on
/// a core of its own.
///
/// All ranks start together, each computes on one core at a time, and the cores are divided equally
/// among the ranks that still compute (generalised processor sharing).
///
/// Args:
///     seconds: [rank] time of the compute on a core of its own, not negative.
///     cores: At least 1. A fraction is what the machine gives where others take the rest.
/// Returns: [rank] factors of at least 1.
[[nodiscard]] std::vector<double> shared_core_factors(std::span<const double> seconds,
                                                      double cores);

}  // namespace stepsim
