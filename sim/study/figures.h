#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace stepsim {

/// A published figure and what Stepsim computes for it.
struct FigureCheck {
  PublishedFigure published;
  std::string conditions;  ///< "8 GPUs, 50 GB/s"
  double computed = 0;     ///< The computed value in base units: bytes, seconds, buckets.
  /// (published - computed) / computed; absent where that is nothing.
  std::optional<double> published_off;
  bool agrees = false;  ///< True: the difference is within the published figure's rounding.

  /// True when the figures differ and the scenario's note does not say why.
  [[nodiscard]] bool unexplained() const { return !agrees && published.note.empty(); }
};

/// Computes every published figure of the scenario, in order. figure_table() lists the formulas.
/// Raises InputError when the scenario has none.
[[nodiscard]] std::vector<FigureCheck> check_figures(const Scenario& scenario);

}  // namespace stepsim
