#include "sim/report/sweep/sweep_shards.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "sim/scenario/stepsim_command.h"

namespace stepsim {

bool sweeps_shards(const std::vector<SweepAxis>& axes) {
  return std::ranges::any_of(axes, [](const SweepAxis& axis) {
    return axis.key == "parallel" || axis.key.starts_with("parallel.") ||
           axis.key == "ddp.zero_stage";
  });
}

std::vector<SweepRow> shown_rows(const std::vector<SweepAxis>& axes, std::vector<SweepRow> rows) {
  if (sweeps_shards(axes)) {
    std::ranges::stable_sort(rows, {}, [](const SweepRow& row) {
      return std::tuple(row.is_blank(),
                        row.point.prediction.out_of_memory.has_value(),
                        -row.point.prediction.summary.useful_tokens_per_s());
    });
  }
  return rows;
}

std::string next_of_shards(const Scenario& scenario,
                           const std::vector<SweepAxis>& axes,
                           const SweepPoint& best) {
  if (!sweeps_shards(axes)) {
    return "";
  }
  std::vector<Setting> set;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    set.push_back(axes[i].values[best.place[i]]);
  }
  return fmt::format("next: {}   (what that step waits for)\n",
                     stepsim_command("blame", scenario, best.prediction.policy, set));
}

}  // namespace stepsim
