#include "sim/predict/played_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

bool has_parts(const PlayedBatches& played) {
  return std::ranges::any_of(played.batches, [](const auto& b) { return !b.offsets.empty(); });
}

/// Every rank must run the scenario's number of micro-batches in every step.
void check_micro_batches(const Scenario& scenario, const PlayedBatches& played) {
  std::map<std::pair<int, int>, int> counts;
  for (const MicroBatch& batch : played.batches) {
    ++counts[{batch.step, batch.rank}];
  }
  for (const auto& [place, count] : counts) {
    if (count != scenario.ddp.accumulation_steps) {
      throw InputError(
          "{}: step {} of rank {} has {} micro-batches, the scenario accumulates {}; set "
          "ddp.accumulation_steps = {} if all steps have as many",
          printable(played.file),
          place.first,
          place.second,
          count,
          scenario.ddp.accumulation_steps,
          count);
    }
  }
}

/// Raises InputError: the file is of other ranks or micro-batches than the scenario.
void check_played(const Scenario& scenario, const PlayedBatches& played) {
  if (played.ranks != scenario.ranks) {
    throw InputError("{} holds batches of {} ranks, the scenario has {}; set cluster.ranks = {}",
                     printable(played.file),
                     played.ranks,
                     scenario.ranks,
                     played.ranks);
  }
  check_micro_batches(scenario, played);
  if (scenario.targets && played.targets.empty()) {
    throw InputError("{} has no second lengths, which data.targets asks for",
                     printable(played.file));
  }
  if (scenario.targets && has_parts(played)) {
    throw InputError(
        "{} cuts samples that have second lengths: what belongs to each part is not known; leave "
        "data.targets out",
        printable(played.file));
  }
}

/// All batches of a file as one epoch.
EpochPlan epoch_of(const PlayedBatches& played) {
  EpochPlan epoch;
  epoch.batches.resize(at(played.ranks));
  const bool cuts = has_parts(played);
  for (const MicroBatch& batch : played.batches) {
    std::vector<std::int64_t>& ids = epoch.batches[at(batch.rank)].emplace_back(batch.samples);
    for (std::size_t i = 0; cuts && i < ids.size(); ++i) {
      ids[i] = std::ssize(epoch.pieces);
      epoch.pieces.push_back(
          {batch.samples[i], batch.offsets.empty() ? 0 : batch.offsets[i], batch.lengths[i]});
    }
  }
  return epoch;
}

/// The different pairs of samples and padded length that a file's batches have.
std::int64_t played_shapes(const PlayedBatches& played) {
  std::set<std::pair<std::size_t, std::int64_t>> shapes;
  for (const MicroBatch& batch : played.batches) {
    shapes.emplace(batch.attended().size(), batch.shape().max_length);
  }
  return std::ssize(shapes);
}

}  // namespace

PlannedData played_data(const Scenario& scenario, const PlayedBatches& played) {
  check_played(scenario, played);
  PlannedData planned;
  planned.lengths = played.lengths;
  planned.targets = scenario.targets ? played.targets : std::vector<std::int64_t>();
  planned.first_epoch = epoch_of(played);
  return planned;
}

void play(const Scenario& scenario, const PlayedBatches& played, const TakeMicroBatch& take) {
  check_played(scenario, played);
  const std::size_t of_step = at(played.ranks) * at(scenario.ddp.accumulation_steps);
  for (int step = 0; step < scenario.steps; ++step) {
    const std::size_t first = at(step % played.steps) * of_step;
    for (std::size_t i = first; i < first + of_step; ++i) {
      MicroBatch batch = played.batches[i];
      batch.step = step;
      if (!scenario.targets) {
        batch.targets.clear();
      }
      take(std::move(batch));
    }
  }
}

TrainingEffects played_effects(const PlayedBatches& played,
                               const EpochPlan& epoch,
                               const PolicyInput& input) {
  TrainingEffects effects = training_effects(epoch, input);
  effects.displacement = 0;
  effects.distinct_shapes = played_shapes(played);
  return effects;
}

}  // namespace stepsim
