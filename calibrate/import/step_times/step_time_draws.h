#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "calibrate/import/step_times/step_time_fit.h"

namespace stepsim {

/// Returns coefficients that the rows allow, a hundred or little more: in equal parts of the fit
/// and of its alternatives.
[[nodiscard]] std::vector<std::vector<double>> drawn_coefficients(const StepTimeFit& fit);

/// A step as the draws have it: what may be said of one and of the order of two.
struct DrawnStep {
  std::vector<double> steps;  ///< [draw] Seconds, without waiting for data.
  double noise = 0;           ///< Standard deviation of a run's logarithm.

  /// The interval of a run's step beyond whose ends a share of `outside` lies on either side.
  [[nodiscard]] std::pair<double, double> interval(double outside = 0.05) const;
};

[[nodiscard]] DrawnStep drawn_step(const StepTimeFit& fit,
                                   const std::vector<std::vector<double>>& draws,
                                   std::size_t compute,
                                   const Placement& placement,
                                   double spread = 0,
                                   std::int64_t micro_batches = 1);

}  // namespace stepsim
