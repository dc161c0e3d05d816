#include "calibrate/import/recorded/recorded_run.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/pass_fit.h"
#include "calibrate/import/recorded/recorded_buckets.h"
#include "calibrate/import/recorded/recorded_cores.h"
#include "calibrate/import/recorded/recorded_host.h"
#include "calibrate/import/recorded/recorded_noise.h"
#include "calibrate/import/recorded/recorded_observations.h"
#include "calibrate/import/recorded/recorded_shapes.h"
#include "calibrate/import/recorded/recorded_stalls.h"
#include "calibrate/import/recorded/recorded_whole.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

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

Memory memory_of(const RecordedCosts& costs) {
  return costs.on_gpu ? Memory::OfGpu : Memory::OfProcessor;
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
  all.waits.assign(all.forward.size(), {});
  for (std::size_t i = 0; i < whole.chosen.size(); ++i) {
    all.forward[i].seconds *= kForwardShare;
    all.backward[i].seconds *= 1 - kForwardShare;
  }
}

/// The observations of a pass in which no device waited for its host.
std::vector<PassObservation> without_waits(const std::vector<PassObservation>& pass,
                                           const std::vector<PassWaits>& waits,
                                           bool PassWaits::*waited) {
  std::vector<PassObservation> found;
  for (std::size_t i = 0; i < pass.size(); ++i) {
    if (!(waits[i].*waited)) {
      found.push_back(pass[i]);
    }
  }
  return found;
}

/// Seconds of the optimizer on the device, where enough steps tell them without a wait for the
/// host.
double optimizer_seconds(const Observations& all) {
  constexpr std::size_t kFewest = 5;
  std::vector<double> told;
  for (std::size_t i = 0; i < all.optimizer.size(); ++i) {
    if (!all.waits[i].optimizer) {
      told.push_back(all.optimizer[i]);
    }
  }
  return trimmed_mean(told.size() >= kFewest ? told : all.optimizer, kLeftOut);
}

/// Fits each pass.
void fit_passes(const Observations& all, Memory memory, RecordedModel& model) {
  const AttentionKind attention = model.model.attention;
  const auto features = pass_features(all.forward, attention, memory);
  const auto fitted = [&](const std::vector<PassObservation>& pass,
                          bool PassWaits::*waited,
                          const PassWeight& weight) {
    PassCost cost = fit_pass(without_waits(pass, all.waits, waited), features, attention, weight);
    // Batches whose passes waited were recorded, too: no pass took longer than they say.
    set_ranges(pass, attention, cost);
    return cost;
  };
  model.forward = fitted(all.forward, &PassWaits::forward, pass_weight(model, true, false));
  model.backward = fitted(all.backward, &PassWaits::backward, pass_weight(model, false, true));
}

/// Keeps what find_waits() found where the host's time is known, which predictions then add, and
/// where enough is left to fit.
void decide_waits(Observations& all, RecordedCosts& costs) {
  const auto clear = std::ranges::count_if(all.waits, std::not_fn(&PassWaits::any));
  if (costs.model.launch_seconds > 0 && static_cast<std::size_t>(clear) >= kFewestPassSamples) {
    if (std::string text = waits_text(all.waits); !text.empty()) {
      costs.notes.push_back(std::move(text));
    }
  } else {
    std::ranges::fill(all.waits, PassWaits{});
  }
}

/// Compute times of a rank's step over the fitted ones, with mean 1, of steps without waits for the
/// host.
std::vector<ComputeRatio> compute_ratios(const Observations& all, const RecordedModel& model) {
  const bool varlen = model.model.attention == AttentionKind::Varlen;
  const PassSeconds forward(model.forward, model.forward.coefficients);
  const PassSeconds backward(model.backward, model.backward.coefficients);
  std::vector<ComputeRatio> ratios;
  double sum = 0;
  for (std::size_t i = 0; i < all.forward.size(); ++i) {
    if (all.waits[i].any()) {
      continue;
    }
    const double fitted = sum_of(all.forward[i].batches, [&](const BatchShape& batch) {
      return forward.of(batch, varlen) + backward.of(batch, varlen);
    });
    const double ratio = (all.forward[i].seconds + all.backward[i].seconds) / fitted;
    ratios.push_back({all.forward[i].step, ratio});
    sum += ratio;
  }
  for (ComputeRatio& ratio : ratios) {
    ratio.ratio *= static_cast<double>(ratios.size()) / sum;
  }
  return ratios;
}

/// Fits the passes of the usual rank where some are steadily slower or faster: those ranks' times
/// are divided by their factors. Returns the factors; empty where all ranks are alike.
std::vector<double> take_out_unequal_ranks(Observations& all,
                                           int ranks,
                                           Memory memory,
                                           RecordedModel& model) {
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
    fit_passes(all, memory, model);
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
  if (const CrowdedMachine& crowded = costs.noise.crowded; crowded.is_crowded()) {
    warnings.push_back(fmt::format(
        "other programs kept the machine busy: the recorded steps took {:.2f} times as long as "
        "their processor time. Predictions are for as busy a machine, and their intervals reach "
        "from an idle one to one with twice as much else to do; record again while nothing else "
        "runs",
        crowded.slowed));
  }
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
  } else if (!costs.sharded && costs.ranks > 1 && costs.all_reduces.empty()) {
    warnings.emplace_back(
        costs.exposures.empty()
            ? "no bucket times were recorded, so all-reduces come from --base; recorder.watch(ddp) "
              "records them"
            : "no bucket times were recorded: all-reduces are those of --base, or proportional to "
              "their bytes, scaled to what the steps left exposed; recorder.watch(ddp) records "
              "their times");
  }
}

const char* how_told(const PassReading& reading, RecordedForm form) {
  if (reading.whole_steps) {
    return form == RecordedForm::WholeSteps
               ? "whole steps are fitted (--fit whole): the compute of the rank with the most "
                 "work, a third of it as forward"
               : "neither buckets nor processor times were recorded, so whole steps are fitted: "
                 "the compute of the rank with the most work, a third of it as forward";
  }
  return reading.by_processor_time()
             ? "backward without waiting: processor time of the thread, scaled to wall time"
             : "backward without waiting: up to the launch of the last bucket";
}

/// Fits what launches and first meetings of shapes cost. Returns the runs, out of `steady`, without
/// the steps with such a meeting.
std::vector<RecordedRun> take_out_meetings(SteadyRuns& steady, RecordedCosts& costs) {
  RecordedShapes shapes = fit_recorded_shapes(steady.runs);
  RecordedHost host = fit_recorded_host(steady.runs);
  if (!host.warning.empty()) {
    shapes.warnings.push_back(host.warning);
  }
  if (host.launch.seconds > 0) {
    costs.model.launch_seconds = host.launch.seconds;
    costs.model.launch_error = host.launch.relative_error;
    costs.model.launched_copies = host.launch.copies;
    costs.model.host_syncs = host.syncs;
    if (!host.new_shapes.empty()) {
      shapes.costs = std::move(host.new_shapes);
      shapes.notes.clear();
    }
    shapes.notes.push_back(std::move(host.note));
  }
  std::vector<RecordedRun> runs =
      without_meetings(std::move(steady.runs), shapes.costs, shapes.warnings);
  costs.new_shapes = std::move(shapes.costs);
  costs.notes = steady.notes;
  costs.notes.insert(costs.notes.end(), shapes.notes.begin(), shapes.notes.end());
  costs.warnings = std::move(shapes.warnings);
  return runs;
}

/// What ran the steps, and how many were read.
void describe_runs(std::span<const RecordedRun> runs,
                   const Observations& all,
                   RecordedCosts& costs) {
  const RunRecord& record = runs.front().record;
  costs.model.model = runs.front().plan.model;
  costs.on_gpu = !has_processor_times(record) &&
                 (record.backend == "nccl" || record.versions->contains("cuda"));
  std::vector<bool> fitted(at(all.steps));
  for (const PassObservation& one : all.forward) {
    fitted[at(one.step)] = true;
  }
  costs.steps = static_cast<int>(std::ranges::count(fitted, true));
}

/// Fits the all-reduces, recorded by themselves or as what they leave exposed.
void fit_all_reduces(std::span<const RecordedRun> runs,
                     const PassReading& reading,
                     RecordedCosts& costs) {
  if (costs.ranks > 1 && !reading.whole_steps) {
    for (const RecordedRun& run : runs) {
      add_reduces(run.record, costs.reduces);
    }
  }
  if (!costs.sharded) {
    costs.exposures = observed_exposures(runs, reading);
  }
  costs.all_reduces = samples_of(costs.reduces, costs.ranks);
}

/// Fits the model's passes; `all` is left with the times that were fitted.
void fit_model(const PassReading& reading, Observations& all, RecordedCosts& costs) {
  RecordedModel& model = costs.model;
  // Before steps are chosen, which drops the waits.
  model.optimizer_seconds = optimizer_seconds(all);
  if (reading.whole_steps) {
    fit_shares_of_steps(all, costs);
  } else {
    fit_passes(all, memory_of(costs), model);
    if (costs.cores == 0) {
      costs.rank_factors = take_out_unequal_ranks(all, costs.ranks, memory_of(costs), model);
    }
    if (!costs.rank_factors.empty()) {
      costs.notes.push_back(unequal_ranks_text(costs.rank_factors));
    }
  }
  model.whole_steps = reading.whole_steps;
  model.data = data_cost(all, model);
}

/// Fits how the steps scatter around the model.
void fit_scatter(const Observations& all,
                 const Plan& plan,
                 double slowed_by_others,
                 RecordedCosts& costs) {
  const auto ratios = compute_ratios(all, costs.model);
  costs.noise = fit_step_noise(ratios, all.steps);
  if (costs.model.whole_steps) {
    keep_spread_of_runs(ratios, plan.steps - plan.warmup_steps, costs.noise);
  } else if (const std::string slow =
                 slow_steps_text(ratios, all.ranks, costs.on_gpu, slowed_by_others);
             !slow.empty()) {
    costs.notes.push_back(slow);
  }
}

}  // namespace

RecordedCosts fit_recorded_runs(std::span<const RecordedRun> recorded, RecordedForm form) {
  if (recorded.empty()) {
    throw InputError("no run record given");
  }
  require_alike(recorded);
  RecordedCosts costs;
  SteadyRuns steady = without_stalls(recorded);
  const std::vector<RecordedRun> runs = take_out_meetings(steady, costs);
  const PassReading reading = pass_reading(runs, form, !costs.model.host_syncs);
  const auto own_records = mapped(recorded, [](const RecordedRun& run) { return &run.record; });
  Observations all = observed_passes(runs, reading, find_waits(own_records));
  costs.ranks = runs.front().record.world_size;
  costs.sharded = is_sharded(runs.front().record);
  costs.cores = reading.cores;
  describe_runs(runs, all, costs);
  fit_all_reduces(runs, reading, costs);
  fit_shares(runs, costs.model);
  decide_waits(all, costs);
  fit_model(reading, all, costs);
  const CrowdedMachine crowded = crowded_machine(runs, costs.cores);
  fit_scatter(all, runs.front().plan, crowded.slowed, costs);
  costs.noise.stalls = steady.stalls;
  costs.noise.crowded = crowded;
  if (costs.on_gpu) {
    // Its host has processors to spare.
    costs.noise.stalls.step_seconds = 0;
    costs.noise.stalls.steps = 0;
  } else if (costs.noise.stalls.per_step > 0) {
    costs.notes.push_back(fmt::format(
        "stalls of less than two steps are other programs' on a processor that they share: they "
        "come by the clock, predictions count {:.0f} % of them, since {} recorded steps say little "
        "of how many there will be, and draw their number for the interval",
        100 * costs.noise.stalls.counted_share(),
        costs.noise.stalls.steps));
  }
  if (costs.cores > 0) {
    costs.notes.push_back(fmt::format(
        "{} ranks shared {:.3g} processor cores: costs are those of a rank with a core of its own, "
        "and predictions share the cores",
        costs.ranks,
        costs.cores));
  }
  if (costs.ranks > 1) {
    costs.notes.emplace_back(how_told(reading, form));
  }
  add_warnings(costs, costs.warnings);
  return costs;
}

}  // namespace stepsim
