#include "calibrate/import/recorded/recorded_observations.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "calibrate/import/recorded/recorded_cores.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

using PlannedBatches = std::map<StepRank, std::vector<const MicroBatch*>>;

/// Micro-batches by step and rank.
PlannedBatches planned(const Plan& plan) {
  PlannedBatches result;
  for (const MicroBatch& batch : plan.micro_batches) {
    result[{batch.step, batch.rank}].push_back(&batch);
  }
  return result;
}

bool has_buckets(const RunRecord& record) {
  return std::ranges::any_of(record.steps,
                             [](const StepRecord& step) { return !step.buckets.empty(); });
}

/// Whether a run's passes can be read without the help of buckets, and it has none.
bool is_plain(const RecordedRun& run) {
  return !has_buckets(run.record) &&
         (run.record.world_size == 1 || has_processor_times(run.record));
}

bool is_read(const RecordedRun& run, const PassReading& reading) {
  switch (reading.runs) {
    case PassReading::Runs::Plain:
      return is_plain(run);
    case PassReading::Runs::WithBuckets:
      return has_buckets(run.record);
    case PassReading::Runs::All:
      break;
  }
  return true;
}

/// Sums of what is known by wall and by processor time.
struct WallOverProcessor {
  double wall = 0;
  double processor = 0;

  [[nodiscard]] double ratio() const { return processor > 0 ? wall / processor : 1; }
};

ProcessorRatios processor_ratios(std::span<const RecordedRun> runs, double cores) {
  if (cores > 0 && !has_fewer_cores(runs.front().record)) {
    return {};  // The cores were chosen so that they explain the wall times.
  }
  WallOverProcessor forward;
  WallOverProcessor backward;
  for (const RecordedRun& run : runs) {
    const auto factors = core_factors(run.record, cores);
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const StepRecord& step = run.record.steps[i];
      if (step.step < run.record.warmup_steps || !(step.forward_cpu_ms > 0)) {
        continue;
      }
      forward.wall += step.forward_ms;
      forward.processor += step.forward_cpu_ms * factors[i];
      if (!step.buckets.empty()) {
        backward.wall += step.backward_ms;
        backward.processor += step.backward_cpu_ms * factors[i];
      }
    }
  }
  return {forward.ratio(), std::max(forward.ratio(), backward.ratio())};
}

/// Whether any step's backward can be told from its wait for other ranks.
bool tells_waiting(const RunRecord& record) {
  return record.world_size == 1 || has_buckets(record) || has_processor_times(record) ||
         std::ranges::any_of(record.steps, [](const StepRecord& step) { return step.wait_ms > 0; });
}

/// Seconds of a step's backward without waiting, or nothing when they cannot be told. `shared`:
/// what it would take on a core of its own.
std::optional<double> backward_seconds(const StepRecord& step,
                                       int ranks,
                                       double ratio,
                                       bool shared) {
  if ((!step.buckets.empty() && !shared) || ranks == 1) {
    return step.backward_ms * kMilli;
  }
  if (step.backward_cpu_ms > 0) {
    return step.backward_cpu_ms * ratio * kMilli;
  }
  if (step.wait_ms > 0) {
    return step.backward_ms * kMilli;
  }
  return std::nullopt;
}

[[noreturn]] void fail_row(const RecordedRun& run,
                           const StepRecord& row,
                           const std::string& message) {
  throw InputError(SourcePlace{run.file}, "step {}, rank {}: {}", row.step, row.rank, message);
}

/// What a rank ran in a step, as the plan has it.
std::vector<BatchShape> batches_of(const RecordedRun& run,
                                   const StepRecord& row,
                                   const PlannedBatches& batches) {
  const auto found = batches.find({row.step, row.rank});
  if (found == batches.end()) {
    fail_row(run, row, "the plan does not have it");
  }
  std::vector<BatchShape> shapes;
  std::int64_t useful = 0;
  for (const MicroBatch* batch : found->second) {
    shapes.push_back(batch->shape(run.plan.model.window));
    useful += shapes.back().useful_tokens;
  }
  if (useful != row.useful_tokens) {
    fail_row(
        run,
        row,
        fmt::format("the record ran {} useful tokens, the plan has {}", row.useful_tokens, useful));
  }
  return shapes;
}

double backward_of(const RecordedRun& run, const StepRecord& row, const PassReading& reading) {
  const auto seconds =
      reading.whole_steps
          ? std::optional(row.backward_ms * kMilli)
          : backward_seconds(
                row, run.record.world_size, reading.over_processor.backward, reading.cores > 0);
  if (!seconds) {
    fail_row(run,
             row,
             "its backward holds the wait for other ranks; record with recorder.watch(ddp), which "
             "tells them apart");
  }
  return *seconds;
}

/// The number of a step among all runs; those before this one have `first` steps.
int step_number(const RecordedRun& run, const StepRecord& row, int first) {
  constexpr std::int64_t kMostSteps = 10'000'000;
  const std::int64_t step = first + std::int64_t{row.repeat} * run.plan.steps + row.step;
  if (step >= kMostSteps) {
    fail_row(run,
             row,
             fmt::format("repeat {} of a plan of {} steps; expected fewer than {} steps in all "
                         "records together",
                         row.repeat,
                         run.plan.steps,
                         kMostSteps));
  }
  return static_cast<int>(step);
}

/// `number`: the place of the run.
void add_run(const RecordedRun& run,
             std::size_t number,
             const PassReading& reading,
             const std::map<RunRow, PassWaits>& waits,
             Observations& all) {
  const PlannedBatches batches = planned(run.plan);
  const int first = all.steps;
  for (const StepRecord& row : run.record.steps) {
    PassObservation observation;
    observation.batches = batches_of(run, row, batches);
    const double backward = backward_of(run, row, reading);
    observation.step = step_number(run, row, first);
    all.steps = std::max(all.steps, observation.step + 1);
    if (row.step < run.record.warmup_steps || row.samples == 0) {
      continue;
    }
    observation.seconds =
        kMilli *
        (reading.cores > 0 ? row.forward_cpu_ms * reading.over_processor.forward : row.forward_ms);
    if (!(observation.seconds > 0) || !(backward > 0)) {
      fail_row(
          run,
          row,
          fmt::format("its {} took no time", observation.seconds > 0 ? "backward" : "forward"));
    }
    all.forward.push_back(observation);
    all.ranks.push_back(row.rank);
    const auto waited = waits.find({number, row.repeat, row.step, row.rank});
    all.waits.push_back(waited == waits.end() ? PassWaits{} : waited->second);
    observation.seconds = backward;
    all.backward.push_back(observation);
    // A recorder that has just begun, or was resumed, does not know when the data was asked for.
    if (const double data_ms = reading.host_loads ? row.data_host_ms : row.data_ms; data_ms > 0) {
      observation.seconds = data_ms * kMilli;
      all.data.push_back(observation);
    }
    all.optimizer.push_back(row.optimizer_ms * kMilli);
  }
}

/// Adds the steady steps of a run without buckets.
void add_exposures(const RecordedRun& run,
                   const PassReading& reading,
                   std::vector<RecordedExposure>& exposures) {
  const ProcessorRatios& ratios = reading.over_processor;
  const auto batches = planned(run.plan);
  const auto factors = core_factors(run.record, reading.cores);
  std::map<std::pair<int, int>, std::vector<RankExposure>> steps;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const StepRecord& row = run.record.steps[i];
    if (row.step < run.record.warmup_steps || row.samples == 0) {
      continue;
    }
    const double backward = row.backward_cpu_ms * factors[i] * ratios.backward * kMilli;
    // On shared cores a forward beside others that wait is as much faster as its backward.
    const double forward = reading.cores > 0
                               ? row.forward_cpu_ms * factors[i] * ratios.forward * kMilli
                               : row.forward_ms * kMilli;
    RankExposure rank;
    rank.start = row.start_ms * kMilli;
    rank.wall = (row.data_ms + row.forward_ms + row.backward_ms) * kMilli;
    rank.compute = row.data_ms * kMilli + forward + backward;
    rank.backward = backward / static_cast<double>(row.micro_batches);
    rank.batch = batches.at({row.step, row.rank}).back()->shape(run.plan.model.window);
    steps[{row.repeat, row.step}].push_back(rank);
  }
  for (const auto& [step, ranks] : steps) {
    exposures.push_back(exposure_of(ranks));
  }
}

}  // namespace

PassReading pass_reading(std::span<const RecordedRun> runs, RecordedForm form, bool host_loads) {
  const auto with_buckets = [](const RecordedRun& run) { return has_buckets(run.record); };
  const auto tells = [](const RecordedRun& run) { return tells_waiting(run.record); };
  PassReading reading;
  reading.host_loads = host_loads;
  reading.whole_steps = form == RecordedForm::WholeSteps || std::ranges::none_of(runs, tells);
  reading.runs = std::ranges::any_of(runs, is_plain)       ? PassReading::Runs::Plain
                 : std::ranges::any_of(runs, with_buckets) ? PassReading::Runs::WithBuckets
                                                           : PassReading::Runs::All;
  if (!reading.whole_steps) {
    reading.cores = shared_cores(runs.front().record);
    reading.over_processor = processor_ratios(runs, reading.cores);
  }
  return reading;
}

Observations observed_passes(std::span<const RecordedRun> runs,
                             const PassReading& reading,
                             const std::map<RunRow, PassWaits>& waits) {
  Observations all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (is_read(runs[i], reading)) {
      add_run(runs[i], i, reading, waits, all);
    }
  }
  if (all.forward.size() < kFewestPassSamples) {
    throw InputError(SourcePlace{runs.front().file},
                     "{} steps of ranks are left for a fit, which takes at least {}: record more "
                     "(the first {} of each repeat are the record's warm-up and do not count)",
                     all.forward.size(),
                     kFewestPassSamples,
                     runs.front().record.warmup_steps);
  }
  return all;
}

std::vector<RecordedExposure> observed_exposures(std::span<const RecordedRun> runs,
                                                 const PassReading& reading) {
  std::vector<RecordedExposure> exposures;
  if (reading.runs == PassReading::Runs::Plain && !reading.whole_steps) {
    for (const RecordedRun& run : runs) {
      if (run.record.world_size > 1 && is_plain(run)) {
        add_exposures(run, reading, exposures);
      }
    }
  }
  return exposures;
}

}  // namespace stepsim
