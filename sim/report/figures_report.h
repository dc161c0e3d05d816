#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/study/figures.h"

namespace stepsim {

/// Published and computed figures side by side, with notes, formulas and sources.
[[nodiscard]] std::string figures_text(const Scenario& scenario,
                                       const std::vector<FigureCheck>& checks,
                                       const Screen& screen = {});
/// {"format": "stepsim-figures/1", "scenario", "figures": […]}, values in bytes, seconds, buckets.
[[nodiscard]] Json figures_json(const Scenario& scenario, const std::vector<FigureCheck>& checks);
/// One row a figure.
[[nodiscard]] std::string figures_csv(const std::vector<FigureCheck>& checks);

}  // namespace stepsim
