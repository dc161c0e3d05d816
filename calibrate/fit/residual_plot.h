#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/series.h"

namespace stepsim {

/// How far the entry of a profile is off at one of the points it was fitted to.
struct Residual {
  std::string panel;  ///< Class and pass: "gemm forward".
  double size = 0;    ///< order_variable(), positive.
  double error = 0;   ///< Predicted / measured - 1.
};

/// One residual for each point of the series; none for ops that do not depend on the batch.
[[nodiscard]] std::vector<Residual> residuals_of(const Series& series, const OpCost& fitted);

/// An SVG picture: a panel for each class and pass, the error in percent over the size on a
/// logarithmic axis. Errors beyond 30 % are drawn at the edge.
[[nodiscard]] std::string residual_plot(const std::string& title,
                                        const std::vector<Residual>& residuals);

}  // namespace stepsim
