#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/series.h"

namespace stepsim {

/// How far the entry of a profile is off at one of the points it was fitted to.
struct Residual {
  std::string panel;  ///< The class and pass: "gemm forward".
  double size = 0;    ///< What order_variable() gives; positive.
  double error = 0;   ///< Predicted / measured - 1.
};

/// The residuals of all points of the series. Ops that do not depend on the batch have none.
[[nodiscard]] std::vector<Residual> residuals_of(const Series& series, const OpCost& fitted);

/// Draws an SVG picture with a panel for each class and pass: the error in percent over the size on
/// a logarithmic axis. Errors beyond 30 % are drawn at the edge.
[[nodiscard]] std::string residual_plot(const std::string& title,
                                        const std::vector<Residual>& residuals);

}  // namespace stepsim
