#pragma once

#include <optional>
#include <vector>

#include "sim/predict/draws/error_draws.h"
#include "sim/predict/draws/pass_draws.h"
#include "sim/predict/run/run.h"

namespace stepsim {

/// One draw of all errors that two policies or settings share.
[[nodiscard]] CostFactors drawn_factors(const Run& run, const PassDraws& draws, ErrorDraws& errors);

/// How much longer compute takes beside collectives in one draw of the fit that the run's passes
/// are of; nothing where that was not fitted with them, or the scenario states its own.
[[nodiscard]] std::optional<double> drawn_slowdown(const Run& run, ErrorDraws& errors);

/// One factor an octave of bytes. The error of a recorded model's all-reduces is that of single
/// sizes, which does not cancel between two bucket caps as a common one does. Empty for other
/// models.
[[nodiscard]] std::vector<double> drawn_sizes(const Run& run, ErrorDraws& errors);

}  // namespace stepsim
