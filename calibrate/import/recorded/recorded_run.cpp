#include "calibrate/import/recorded/recorded_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/pass_fit.h"
#include "calibrate/import/recorded/recorded_buckets.h"
#include "calibrate/import/recorded/recorded_cores.h"
#include "calibrate/import/recorded/recorded_host.h"
#include "calibrate/import/recorded/recorded_noise.h"
#include "calibrate/import/recorded/recorded_shapes.h"
#include "calibrate/import/recorded/recorded_stalls.h"
#include "calibrate/import/recorded/recorded_whole.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

/// Micro-batches by step and rank.
std::map<StepRank, std::vector<const MicroBatch*>> planned(const Plan& plan) {
  std::map<StepRank, std::vector<const MicroBatch*>> result;
  for (const MicroBatch& batch : plan.micro_batches) {
    result[{batch.step, batch.rank}].push_back(&batch);
  }
  return result;
}

bool has_buckets(const RunRecord& record) {
  return std::ranges::any_of(record.steps,
                             [](const StepRecord& step) { return !step.buckets.empty(); });
}

void require_alike(std::span<const RecordedRun> runs) {
  const RecordedRun& first = runs.front();
  for (const RecordedRun& run : runs) {
    if (run.record.world_size != run.plan.ranks || run.record.world_size != first.plan.ranks) {
      throw InputError(SourcePlace{run.file},
                       "recorded on {} ranks, its plan has {}, {} has {}",
                       run.record.world_size,
                       run.plan.ranks,
                       first.file,
                       first.record.world_size);
    }
    if (!same_model(run.plan.model, first.plan.model)) {
      throw InputError(SourcePlace{run.file},
                       "its plan is of another model than that of " + first.file);
    }
    if (run.record.device != first.record.device || run.record.backend != first.record.backend) {
      throw InputError(SourcePlace{run.file},
                       "recorded on '{}' with '{}', {} on '{}' with '{}'",
                       printable(run.record.device),
                       printable(run.record.backend),
                       first.file,
                       printable(first.record.device),
                       printable(first.record.backend));
    }
  }
}

/// Sums of what is known by wall and by processor time.
struct WallOverProcessor {
  double wall = 0;
  double processor = 0;

  [[nodiscard]] double ratio() const { return processor > 0 ? wall / processor : 1; }
};

/// Wall over processor time, beside what sharing cores makes of it.
struct ProcessorRatios {
  double forward = 1;
  /// The factor of forwards, or of backwards beside all-reduces (where the buckets tell the wait
  /// apart), whichever is slowed more by what the machine does beside the training thread.
  double backward = 1;
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

/// The observations of all runs, the passes in the same order.
struct Observations {
  std::vector<PassObservation> data;
  std::vector<PassObservation> forward;
  std::vector<PassObservation> backward;
  std::vector<double> optimizer;
  std::vector<int> ranks;  ///< [as forward]
  int steps = 0;
};

/// `whole`: leave the wait in the backward. `host_loads`: loading is the host's own time, which it
/// spends ahead of the device. A forward costs its wall time, where cores are shared
/// its processor time: what it would take on a core of its own.
void add_run(const RecordedRun& run,
             const ProcessorRatios& ratios,
             bool shared,
             bool whole,
             bool host_loads,
             Observations& all) {
  const auto batches = planned(run.plan);
  const int first = all.steps;
  for (const StepRecord& row : run.record.steps) {
    const auto found = batches.find({row.step, row.rank});
    const auto fail = [&](const std::string& message) {
      throw InputError(SourcePlace{run.file}, "step {}, rank {}: {}", row.step, row.rank, message);
    };
    if (found == batches.end()) {
      fail("the plan does not have it");
    }
    PassObservation observation;
    std::int64_t useful = 0;
    for (const MicroBatch* batch : found->second) {
      observation.batches.push_back(batch->shape(run.plan.model.window));
      useful += observation.batches.back().useful_tokens;
    }
    if (useful != row.useful_tokens) {
      fail(fmt::format(
          "the record ran {} useful tokens, the plan has {}", row.useful_tokens, useful));
    }
    const auto backward =
        whole ? std::optional(row.backward_ms * kMilli)
              : backward_seconds(row, run.record.world_size, ratios.backward, shared);
    if (!backward) {
      fail(
          "its backward holds the wait for other ranks; record with recorder.watch(ddp), which "
          "tells them apart");
    }
    constexpr std::int64_t kMostSteps = 10'000'000;
    const std::int64_t step = first + std::int64_t{row.repeat} * run.plan.steps + row.step;
    if (step >= kMostSteps) {
      fail(fmt::format(
          "repeat {} of a plan of {} steps; expected fewer than {} steps in all records together",
          row.repeat,
          run.plan.steps,
          kMostSteps));
    }
    observation.step = static_cast<int>(step);
    all.steps = std::max(all.steps, observation.step + 1);
    if (row.step < run.record.warmup_steps || row.samples == 0) {
      continue;
    }
    observation.seconds = kMilli * (shared ? row.forward_cpu_ms * ratios.forward : row.forward_ms);
    if (!(observation.seconds > 0) || !(*backward > 0)) {
      fail(fmt::format("its {} took no time", observation.seconds > 0 ? "backward" : "forward"));
    }
    all.forward.push_back(observation);
    all.ranks.push_back(row.rank);
    observation.seconds = *backward;
    all.backward.push_back(observation);
    // A recorder that has just begun, or was resumed, does not know when the data was asked for.
    if (const double data_ms = host_loads ? row.data_host_ms : row.data_ms; data_ms > 0) {
      observation.seconds = data_ms * kMilli;
      all.data.push_back(observation);
    }
    all.optimizer.push_back(row.optimizer_ms * kMilli);
  }
}

/// Adds the steady steps of a run without buckets.
void add_exposures(const RecordedRun& run,
                   const ProcessorRatios& ratios,
                   double cores,
                   std::vector<RecordedExposure>& exposures) {
  const auto batches = planned(run.plan);
  const auto factors = core_factors(run.record, cores);
  std::map<std::pair<int, int>, std::vector<RankExposure>> steps;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const StepRecord& row = run.record.steps[i];
    if (row.step < run.record.warmup_steps || row.samples == 0) {
      continue;
    }
    const double backward = row.backward_cpu_ms * factors[i] * ratios.backward * kMilli;
    // On shared cores a forward beside others that wait is as much faster as its backward.
    const double forward = cores > 0 ? row.forward_cpu_ms * factors[i] * ratios.forward * kMilli
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

/// What a forward, a backward or both of a model weigh.
PassWeight pass_weight(const RecordedModel& model, bool forward, bool backward) {
  const StepOps all = step_ops(model.model);
  std::vector<Op> ops;
  if (forward) {
    ops.insert(ops.end(), all.forward.begin(), all.forward.end());
  }
  if (backward) {
    ops.insert(ops.end(), all.backward.begin(), all.backward.end());
  }
  return [ops = std::move(ops), per_byte = model.operations_per_byte](const BatchShape& batch) {
    return sum_of(ops, [&](const Op& op) { return op_weight(op, batch, per_byte); });
  };
}

/// The time to load a batch; nothing where the recorded loops hardly waited for their data.
PassCost data_cost(const Observations& all, const RecordedModel& model) {
  constexpr std::size_t kFewest = 10;
  PassCost cost;
  if (all.data.size() < kFewest) {
    cost.features = {"1"};
    cost.coefficients = {0};
    cost.tokens = model.forward.tokens;
    cost.length = model.forward.length;
    return cost;
  }
  cost = fit_pass(all.data, {"1", "tokens"}, model.model.attention);
  cost.draws.clear();
  // Most loops hardly wait for their data, and few single waits then make a relative error of
  // several hundred percent. But the mean of n times is off by no more than itself: with all in one
  // of them, its standard error is the mean.
  if (cost.errors.block) {
    cost.errors.block = std::min(*cost.errors.block, 1.0);
  }
  return cost;
}

/// Fits the passes as shares of whole steps, and leaves but the steps that were fitted in `all`.
void fit_shares_of_steps(Observations& all, RecordedCosts& costs) {
  for (std::size_t i = 0; i < all.forward.size(); ++i) {
    all.forward[i].seconds += all.backward[i].seconds;
  }
  const WholeSteps whole = fit_whole_steps(
      all.forward, costs.model.model.attention, pass_weight(costs.model, true, true));
  costs.whole = whole.cost;
  costs.model.forward = part_of(whole.cost, kForwardShare);
  costs.model.backward = part_of(whole.cost, 1 - kForwardShare);
  all.forward = all.backward = whole.chosen;
  for (std::size_t i = 0; i < whole.chosen.size(); ++i) {
    all.forward[i].seconds *= kForwardShare;
    all.backward[i].seconds *= 1 - kForwardShare;
  }
}

/// Fits each pass.
void fit_passes(const Observations& all, RecordedModel& model) {
  const AttentionKind attention = model.model.attention;
  const auto features = pass_features(all.forward, attention);
  model.forward = fit_pass(all.forward, features, attention, pass_weight(model, true, false));
  model.backward = fit_pass(all.backward, features, attention, pass_weight(model, false, true));
}

/// Compute times of a rank's step over the fitted ones, with mean 1. [observation]
std::vector<ComputeRatio> compute_ratios(const Observations& all, const RecordedModel& model) {
  const bool varlen = model.model.attention == AttentionKind::Varlen;
  std::vector<ComputeRatio> ratios;
  double mean = 0;
  for (std::size_t i = 0; i < all.forward.size(); ++i) {
    const double fitted = sum_of(all.forward[i].batches, [&](const BatchShape& batch) {
      return pass_seconds(model.forward, model.forward.coefficients, batch, varlen) +
             pass_seconds(model.backward, model.backward.coefficients, batch, varlen);
    });
    const double ratio = (all.forward[i].seconds + all.backward[i].seconds) / fitted;
    ratios.push_back({all.forward[i].step, ratio});
    mean += ratio / static_cast<double>(all.forward.size());
  }
  for (ComputeRatio& ratio : ratios) {
    ratio.ratio /= mean;
  }
  return ratios;
}

/// Fits the passes of the usual rank where some are steadily slower or faster: those ranks' times
/// are divided by their factors. Returns the factors; empty where all ranks are alike.
std::vector<double> take_out_unequal_ranks(Observations& all, int ranks, RecordedModel& model) {
  constexpr int kRounds = 4;  // The first fit still has the unequal ranks' times in it.
  std::vector<double> factors(at(ranks), 1.0);
  bool found = false;
  for (int round = 0; round < kRounds; ++round) {
    const auto left = unequal_ranks(compute_ratios(all, model), all.ranks, ranks);
    if (left.empty()) {
      break;
    }
    found = true;
    for (std::size_t i = 0; i < all.forward.size(); ++i) {
      all.forward[i].seconds /= left[at(all.ranks[i])];
      all.backward[i].seconds /= left[at(all.ranks[i])];
    }
    for (std::size_t rank = 0; rank < factors.size(); ++rank) {
      factors[rank] *= left[rank];
    }
    fit_passes(all, model);
  }
  return found ? factors : std::vector<double>{};
}

std::string unequal_ranks_text(const std::vector<double>& factors) {
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < factors.size(); ++rank) {
    if (factors[rank] != 1) {
      ranks.push_back(fmt::format("rank {} {:.2f}", rank, factors[rank]));
    }
  }
  return fmt::format(
      "some ranks take steadily longer or shorter for batches of the same size ({} times the usual "
      "rank): the profile keeps that for {} ranks; cluster.slow_ranks = [] in a scenario leaves it "
      "out",
      fmt::join(ranks, ", "),
      factors.size());
}

void add_warnings_of_whole_steps(int ranks, std::vector<std::string>& warnings) {
  warnings.push_back(fmt::format(
      "fitted to whole steps, all-reduces between {} ranks inside: bucket caps, other networks and "
      "other numbers of ranks cannot be compared with this profile; recorder.watch(ddp) tells "
      "all-reduces apart",
      ranks));
  warnings.emplace_back(
      "steps do not jitter in predictions of this profile: the spread of single steps is in the "
      "interval of the mean, not in p95 and p99");
}

void add_warnings(const RecordedCosts& costs, std::vector<std::string>& warnings) {
  const PassCost& forward = costs.model.forward;
  if (forward.tokens.first > 0.5 * forward.tokens.second) {
    warnings.push_back(fmt::format(
        "all recorded batches have {:.0f} to {:.0f} tokens: what smaller or larger ones cost is a "
        "guess; record a policy whose batches differ more",
        forward.tokens.first,
        forward.tokens.second));
  }
  if (forward.length.first > 0.5 * forward.length.second) {
    warnings.push_back(fmt::format(
        "all recorded batches are padded to {:.0f} to {:.0f} tokens: how attention grows with the "
        "length is a guess",
        forward.length.first,
        forward.length.second));
  }
  if (costs.whole) {
    add_warnings_of_whole_steps(costs.ranks, warnings);
  } else if (costs.ranks > 1 && costs.all_reduces.empty()) {
    warnings.emplace_back(
        costs.exposures.empty()
            ? "no bucket times were recorded, so all-reduces come from --base; recorder.watch(ddp) "
              "records them"
            : "no bucket times were recorded: all-reduces are those of --base, or proportional to "
              "their bytes, scaled to what the steps left exposed; recorder.watch(ddp) records "
              "their times");
  }
}

const char* how_told(bool whole, bool by_processor_time, bool asked) {
  if (whole) {
    return asked ? "whole steps are fitted (--fit whole): the compute of the rank with the most "
                   "work, a third of it as forward"
                 : "neither buckets nor processor times were recorded, so whole steps are fitted: "
                   "the compute of the rank with the most work, a third of it as forward";
  }
  return by_processor_time
             ? "backward without waiting: processor time of the thread, scaled to wall time"
             : "backward without waiting: up to the launch of the last bucket";
}

}  // namespace

RecordedCosts fit_recorded_runs(std::span<const RecordedRun> recorded, RecordedForm form) {
  if (recorded.empty()) {
    throw InputError("no run record given");
  }
  require_alike(recorded);
  RecordedCosts costs;
  const SteadyRuns steady = without_stalls(recorded);
  RecordedShapes shapes = fit_recorded_shapes(steady.runs);
  RecordedHost host = fit_recorded_host(steady.runs);
  if (!host.warning.empty()) {
    shapes.warnings.push_back(host.warning);
  }
  if (host.launch.seconds > 0) {
    costs.model.launch_seconds = host.launch.seconds;
    costs.model.launch_error = host.launch.relative_error;
    costs.model.host_syncs = host.syncs;
    if (!host.new_shapes.empty()) {
      shapes.costs = std::move(host.new_shapes);
      shapes.notes.clear();
    }
    shapes.notes.push_back(std::move(host.note));
  }
  const std::vector<RecordedRun> runs =
      without_meetings(steady.runs, shapes.costs, shapes.warnings);
  costs.new_shapes = std::move(shapes.costs);
  costs.notes = steady.notes;
  costs.notes.insert(costs.notes.end(), shapes.notes.begin(), shapes.notes.end());
  costs.warnings = std::move(shapes.warnings);
  costs.ranks = runs.front().record.world_size;
  costs.on_gpu =
      !has_processor_times(runs.front().record) &&
      (runs.front().record.backend == "nccl" || runs.front().record.versions->contains("cuda"));
  const auto plain = [&](const RecordedRun& run) {
    return !has_buckets(run.record) && (costs.ranks == 1 || has_processor_times(run.record));
  };
  const bool any_plain = std::ranges::any_of(runs, plain);
  const bool any_buckets =
      std::ranges::any_of(runs, [](const RecordedRun& run) { return has_buckets(run.record); });
  const bool whole =
      form == RecordedForm::WholeSteps ||
      std::ranges::none_of(runs, [](const RecordedRun& run) { return tells_waiting(run.record); });
  costs.cores = whole ? 0 : shared_cores(runs.front().record);
  const ProcessorRatios over_processor =
      whole ? ProcessorRatios{} : processor_ratios(runs, costs.cores);
  Observations all;
  for (const RecordedRun& run : runs) {
    if (!whole && costs.ranks > 1) {
      add_reduces(run.record, costs.reduces);
    }
    if (any_plain ? plain(run) : has_buckets(run.record) || !any_buckets) {
      add_run(run, over_processor, costs.cores > 0, whole, !costs.model.host_syncs, all);
      if (any_plain && costs.ranks > 1 && !whole) {
        add_exposures(run, over_processor, costs.cores, costs.exposures);
      }
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
  costs.all_reduces = samples_of(costs.reduces, costs.ranks);
  RecordedModel& model = costs.model;
  model.model = runs.front().plan.model;
  std::set<int> steps;
  for (const PassObservation& one : all.forward) {
    steps.insert(one.step);
  }
  costs.steps = static_cast<int>(steps.size());
  fit_shares(runs, model);
  if (whole) {
    fit_shares_of_steps(all, costs);
  } else {
    fit_passes(all, model);
    if (costs.cores == 0) {
      costs.rank_factors = take_out_unequal_ranks(all, costs.ranks, model);
    }
    if (!costs.rank_factors.empty()) {
      costs.notes.push_back(unequal_ranks_text(costs.rank_factors));
    }
  }
  model.whole_steps = whole;
  model.data = data_cost(all, model);
  model.optimizer_seconds = trimmed_mean(all.optimizer, kLeftOut);
  const auto ratios = compute_ratios(all, model);
  costs.noise = fit_step_noise(ratios, all.steps);
  costs.noise.stalls = steady.stalls;
  if (const std::string slow = whole ? "" : slow_steps_text(ratios, all.ranks, costs.on_gpu);
      !slow.empty()) {
    costs.notes.push_back(slow);
  }
  if (whole) {
    const Plan& plan = runs.front().plan;
    keep_spread_of_runs(ratios, plan.steps - plan.warmup_steps, costs.noise);
  }
  if (costs.cores > 0) {
    costs.notes.push_back(fmt::format(
        "{} ranks shared {:.3g} processor cores: costs are those of a rank with a core of its own, "
        "and predictions share the cores",
        costs.ranks,
        costs.cores));
  }
  if (costs.ranks > 1) {
    costs.notes.emplace_back(
        how_told(whole, any_plain || costs.cores > 0, form == RecordedForm::WholeSteps));
  }
  add_warnings(costs, costs.warnings);
  return costs;
}

}  // namespace stepsim
