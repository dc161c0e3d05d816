#include "sim/study/step_time_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/quantile.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"

namespace stepsim {
namespace {

constexpr double kSecond = 1e3;  // In milliseconds.

const BatchingPolicy& fixed_policy(const Scenario& scenario) {
  const auto found = std::ranges::find_if(scenario.policies, [](const BatchingPolicy& policy) {
    return policy.kind().name == "fixed";
  });
  if (found == scenario.policies.end()) {
    throw InputError(
        SourcePlace{scenario.path},
        "has no policy of kind \"fixed\", whose batch_size the table's rows would take");
  }
  return *found;
}

/// What a rank alone shows as exposed: the rest of the last hook.
double rest_of(std::span<const StepTimeCheckRow> rows) {
  std::vector<double> rests;
  for (const StepTimeCheckRow& row : rows) {
    if (row.measured.placement.ranks() == 1 && row.measured.sync_s) {
      rests.push_back(*row.measured.sync_s);
    }
  }
  return rests.empty() ? 0 : quantile(rests, 0.5);
}

/// The samples of an epoch that no step of a row reaches beyond. Raises InputError: more than a
/// scenario takes.
std::int64_t samples_of(const StepTimeRow& row, const StepTimeTable& table, int steps) {
  constexpr double kMost = std::int64_t{1} << 27U;  // As data.samples takes them.
  const double samples = static_cast<double>(row.batch) * static_cast<double>(row.micro_batches) *
                         row.placement.ranks() * (steps + 1.0);
  if (samples > kMost) {
    throw InputError(SourcePlace{table.path, row.line},
                     fmt::format("{}: {} steps take {:.3g} samples, and a scenario takes {:.0f}; "
                                 "take fewer steps (--steps), or leave the row out",
                                 configuration_of(row, table.has_lengths),
                                 steps,
                                 samples,
                                 kMost));
  }
  return static_cast<std::int64_t>(samples);
}

}  // namespace

std::vector<StepTimeCheckRow> check_step_times(const Scenario& scenario,
                                               const StepTimeTable& table,
                                               const ProgressCallback& on_progress) {
  const std::string policy = fixed_policy(scenario).name();
  const Profile profile = scenario_profile(scenario);
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, StepTimeCheckRow>
      known;
  std::vector<StepTimeCheckRow> rows;
  for (StepTimeRow measured : table.rows) {
    if (!table.has_micro_batches) {
      measured.micro_batches = scenario.ddp.accumulation_steps;
    }
    const std::string placement = text_of(measured.placement);
    const auto [place, is_new] =
        known.try_emplace({placement, measured.batch, measured.micro_batches, measured.length});
    if (is_new) {
      std::vector<Setting> settings = {
          {"cluster.placement", placement},
          {fmt::format("policy.{}.batch_size", policy), std::to_string(measured.batch)},
          {"data.samples", std::to_string(samples_of(measured, table, scenario.steps))},
          {"ddp.accumulation_steps", std::to_string(measured.micro_batches)}};
      if (table.has_lengths) {
        settings.emplace_back("data.lengths", fmt::format("{{constant={}}}", measured.length));
      }
      const Scenario own = with_settings(scenario, {std::move(settings)});
      const Prediction prediction = predict(own, find_policy(own, policy), profile, {});
      const PredictionSummary& summary = prediction.summary;
      place->second.step_s = summary.step_time_ms.mean / kSecond;
      place->second.low90_s = summary.step_time_ms.low90 / kSecond;
      place->second.high90_s = summary.step_time_ms.high90 / kSecond;
      place->second.intervals = prediction.intervals;
      place->second.exposed_s = summary.exposed_communication_ms / kSecond;
    }
    rows.push_back(place->second);
    rows.back().measured = std::move(measured);
    if (on_progress) {
      on_progress(static_cast<double>(rows.size()) / static_cast<double>(table.rows.size()));
    }
  }
  return rows;
}

std::vector<StepTimeGroup> step_time_groups(std::span<const StepTimeCheckRow> rows) {
  struct Bounds {
    const char* name;
    int fewest;
    int most;
  };
  constexpr std::array<Bounds, 5> kBounds = {{{"1 rank", 0, 0},
                                              {"1 node", 1, 1},
                                              {"2 nodes", 2, 2},
                                              {"3 to 4 nodes", 3, 4},
                                              {"5 nodes and more", 5, kMaxPlacedRanks}}};
  const double rest = rest_of(rows);
  std::vector<StepTimeGroup> groups;
  for (const Bounds& bounds : kBounds) {
    StepTimeGroup group;
    group.name = bounds.name;
    int exposed = 0;
    for (const StepTimeCheckRow& row : rows) {
      const Placement& placement = row.measured.placement;
      const int nodes = placement.ranks() == 1 ? 0 : placement.nodes();
      if (nodes < bounds.fewest || nodes > bounds.most) {
        continue;
      }
      ++group.rows;
      group.error += std::abs(row.error());
      group.bias += row.error();
      group.covered += row.covered() ? 1 : 0;
      if (row.measured.sync_s && nodes > 0) {
        ++exposed;
        group.exposed_error_s += std::abs(row.exposed_s - (*row.measured.sync_s - rest));
        group.exposed_s += *row.measured.sync_s - rest;
      }
    }
    for (double* sum : {&group.error, &group.bias, &group.covered}) {
      *sum /= std::max(group.rows, 1);
    }
    for (double* sum : {&group.exposed_error_s, &group.exposed_s}) {
      *sum /= std::max(exposed, 1);
    }
    if (group.rows > 0) {
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace stepsim
