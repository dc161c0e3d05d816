#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/report/sweep/sweep_report.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// What training costs on each cluster of a sweep, and how large a cluster is worth it.
[[nodiscard]] std::string training_text(const std::vector<SweepAxis>& axes,
                                        const SweepReport& report,
                                        const Screen& screen);

/// {"goal", "points": [{"ranks", "samples_per_s", …}], "largest_worth"}: numbers that are not known
/// are null.
[[nodiscard]] Json training_json(const std::vector<SweepAxis>& axes, const SweepReport& report);

}  // namespace stepsim
