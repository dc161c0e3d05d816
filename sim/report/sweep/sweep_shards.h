#pragma once

#include <string>
#include <vector>

#include "sim/report/sweep/sweep_columns.h"
#include "sim/scenario/scenario.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// True: ways of sharding are among what is swept: `parallel`, one of its keys or ddp.zero_stage.
[[nodiscard]] bool sweeps_shards(const std::vector<SweepAxis>& axes);

/// The rows that a text shows, in its order. Of ways of sharding the fastest that fits comes first,
/// and those that are refused last.
[[nodiscard]] std::vector<SweepRow> shown_rows(const std::vector<SweepAxis>& axes,
                                               std::vector<SweepRow> rows);

/// The line "next: stepsim blame …" on the best of several ways of sharding; empty where other keys
/// are swept.
[[nodiscard]] std::string next_of_shards(const Scenario& scenario,
                                         const std::vector<SweepAxis>& axes,
                                         const SweepPoint& best);

}  // namespace stepsim
