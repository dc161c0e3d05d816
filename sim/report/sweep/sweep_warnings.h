#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/report/sweep/sweep_report.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// The points at these places in words: "1 MiB, 4 MiB to 32 MiB" of one key, else how many.
[[nodiscard]] std::string places_text(const std::vector<SweepAxis>& axes,
                                      const SweepReport& report,
                                      const std::vector<std::size_t>& places);

/// The warnings of all points and of the reference, each once, with the points it is about.
[[nodiscard]] std::vector<std::string> sweep_warnings(const std::vector<SweepAxis>& axes,
                                                      const SweepReport& report);

}  // namespace stepsim
