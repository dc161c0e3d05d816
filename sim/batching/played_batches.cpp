#include "sim/batching/played_batches.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/records/record_files.h"
#include "costmodel/records/recorded_batches.h"

namespace stepsim {
namespace {

/// By the first line; a file that cannot be read is left to read_plan(), which says so.
bool is_run_record(const std::string& path) {
  std::ifstream file(path);
  std::string header;
  std::getline(file, header);
  return header.find("\"stepsim-run-record/") != std::string::npos;
}

PlayedBatches of_record(const std::string& path) {
  const RunRecord record = read_record_files(std::span(&path, 1), nullptr).front().record;
  PlayedBatches played;
  played.ranks = record.world_size;
  std::map<int, int> steps;  // From the record's numbers, of which some may be missing.
  for (const StepRecord& step : record.steps) {
    if (step.repeat == 0) {
      ++steps[step.step];
    }
  }
  // A step of which a rank's row is missing, as in a file that was cut, cannot be played.
  std::erase_if(steps, [&](const auto& step) { return step.second < record.world_size; });
  if (steps.empty()) {
    throw InputError(SourcePlace{path}, "no step has the rows of all {} ranks", record.world_size);
  }
  played.steps = 0;
  for (auto& [recorded, number] : steps) {
    number = played.steps++;
  }
  std::int64_t sample = 0;
  for (const StepRecord& step : record.steps) {
    if (step.repeat == 0 && steps.contains(step.step)) {
      for (MicroBatch& batch : micro_batches_of(step, path, sample)) {
        batch.step = steps.at(step.step);
        played.batches.push_back(std::move(batch));
      }
      sample += step.samples;
    }
  }
  return played;
}

PlayedBatches of_plan(const std::string& path) {
  Plan plan = read_plan(path);
  PlayedBatches played;
  played.ranks = plan.ranks;
  played.steps = plan.steps;
  played.batches = std::move(plan.micro_batches);
  played.attention = plan.model.attention;
  return played;
}

/// Numbers the samples anew and collects their lengths.
void number_samples(PlayedBatches& played) {
  std::map<std::int64_t, std::int64_t> places;
  const bool has_targets = std::ranges::any_of(
      played.batches, [](const MicroBatch& batch) { return !batch.targets.empty(); });
  for (const MicroBatch& batch : played.batches) {
    for (const std::int64_t id : batch.samples) {
      places.emplace(id, 0);
    }
  }
  std::int64_t count = 0;
  for (auto& [id, place] : places) {
    place = count++;
  }
  played.lengths.assign(at(count), 0);
  played.targets.assign(has_targets ? at(count) : 0, 0);
  for (MicroBatch& batch : played.batches) {
    for (std::size_t i = 0; i < batch.samples.size(); ++i) {
      std::int64_t& id = batch.samples[i];
      id = places.at(id);
      const std::int64_t end = batch.lengths[i] + (batch.offsets.empty() ? 0 : batch.offsets[i]);
      played.lengths[at(id)] = std::max(played.lengths[at(id)], end);
      if (has_targets) {
        played.targets[at(id)] = batch.targets.at(i);
      }
    }
  }
}

}  // namespace

PlayedBatches read_played_batches(const std::string& path) {
  PlayedBatches played = is_run_record(path) ? of_record(path) : of_plan(path);
  played.file = path;
  number_samples(played);
  return played;
}

}  // namespace stepsim
