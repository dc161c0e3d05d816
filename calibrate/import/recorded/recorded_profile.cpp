#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "calibrate/fit/collectives.h"
#include "calibrate/import/recorded/recorded_run.h"
#include "costmodel/records/profile_format.h"

namespace stepsim {
namespace {

/// An all-reduce that takes no time, whatever its size.
CollectiveCost free_all_reduce(int ranks) {
  constexpr double kMaxBytes = 1e15;
  CollectiveCost cost;
  cost.ranks = ranks;
  cost.knots = {{1, 0}, {kMaxBytes, 0}};
  return cost;
}

/// What the first run that says so measured of the host's time for sharded units.
std::optional<UnitHostTimes> recorded_unit_host(std::span<const RecordedRun> runs) {
  for (const RecordedRun& run : runs) {
    const Json& training = *run.record.training;
    if (training.contains("unit_host")) {
      return read_unit_host(JsonReader(training["unit_host"], run.file, 1, "unit_host"));
    }
  }
  return std::nullopt;
}

}  // namespace

Profile recorded_profile(const RecordedCosts& costs,
                         std::span<const RecordedRun> runs,
                         const Profile* base) {
  Profile profile;
  const RunRecord& record = runs.front().record;
  if (base != nullptr) {
    profile = *base;
  }
  if (!record.device.empty()) {
    profile.device = record.device;  // Compute is its, whatever the base's all-reduces are of.
  }
  profile.backend = costs.on_gpu ? "cuda" : "cpu";  // That of the passes, whatever the base's is.
  profile.host_is_device = !costs.on_gpu;
  profile.recorded = costs.model;
  if (const auto units = recorded_unit_host(runs)) {
    profile.unit_host = units;
  }
  profile.cores = costs.cores;
  profile.rank_factors = costs.rank_factors;
  profile.new_shapes = costs.new_shapes;
  profile.noise.step_jitter = costs.noise.step_jitter;
  profile.noise.drift = costs.noise.drift;
  profile.noise.step_quantiles = costs.noise.step_quantiles;
  profile.noise.rank_correlation = costs.noise.rank_correlation;
  profile.noise.stalls = costs.noise.stalls;
  profile.noise.crowded = costs.noise.crowded;
  if (costs.whole && costs.ranks > 1) {
    std::erase_if(profile.collectives, [&](const CollectiveCost& cost) {
      return cost.kind == name_of(CollectiveKind::AllReduce) && cost.ranks == costs.ranks;
    });
    profile.collectives.push_back(free_all_reduce(costs.ranks));
  }
  if (costs.reduces.empty() && !costs.exposures.empty()) {
    scale_to_exposure(
        costs.exposures, runs.front().plan, costs.model.operations_per_byte, profile.collectives);
  }
  for (CollectiveFit& fit : fit_collectives(costs.all_reduces)) {
    const auto known = std::ranges::find_if(profile.collectives, [&](const CollectiveCost& cost) {
      return cost.kind == fit.cost.kind && cost.ranks == fit.cost.ranks &&
             cost.nodes == fit.cost.nodes;
    });
    if (known == profile.collectives.end()) {
      profile.collectives.push_back(std::move(fit.cost));
    } else {
      const TrainingReduces training = fit_training_reduces(costs.reduces, *known);
      apply(training, costs.reduces, *known);
      if (training.transfer > 0) {
        InterferenceProfile interference;
        interference.value.transfer = training.transfer;
        interference.transfer = training.transfer_interval;
        interference.samples = static_cast<int>(costs.reduces.size());
        interference.errors.random = training.error;
        profile.interference = interference;
      }
      break;  // One fit uses the samples of all sizes.
    }
  }
  return profile;
}

}  // namespace stepsim
