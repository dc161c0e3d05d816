#include "sim/predict/predict.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/mapped.h"
#include "costmodel/model/memory.h"
#include "sim/predict/error_draws.h"
#include "sim/predict/metrics.h"
#include "sim/predict/noise.h"
#include "sim/predict/prediction_notes.h"
#include "sim/predict/step_cost.h"
#include "sim/predict/step_simulator.h"

namespace stepsim {

namespace {

/// Calls `visit(timeline)` for the steady steps of one run with noise.
template <class Visit>
void play_steady_steps(const PricedRun& run,
                       const CostFactors& factors,
                       double common,
                       NoiseDraws& noise,
                       Visit visit) {
  StepSimulator simulator(run, factors, common, &noise);
  for (int step = 0; step < run.plan().steps; ++step) {
    const StepTimeline timeline = simulator.next();
    if (step >= run.scenario().warmup_steps) {
      visit(timeline);
    }
  }
}

/// One rank's row: its micro-batches together.
RankStepResult row_of(const PricedRun& run,
                      std::span<const MicroBatch> batches,
                      const RankTimeline& times) {
  RankStepResult row;
  static_cast<RankTimes&>(row) = rank_times(times);
  row.step = batches.front().step;
  row.rank = batches.front().rank;
  for (const MicroBatch& batch : batches) {
    const BatchShape shape = batch.shape();
    row.samples += static_cast<std::int64_t>(batch.samples.size());
    row.max_length = std::max(row.max_length, shape.max_length);
    row.useful_tokens += shape.useful_tokens;
    row.padded_tokens += run.model().input_tokens(shape);
  }
  row.start_ms = to_ms(times.start.time_since_epoch());
  return row;
}

/// Peak memory of one rank's micro-batches, and the first step and rank that do not fit.
void add_memory(const PeakMemory& memory,
                Bytes capacity,
                std::span<const MicroBatch> batches,
                RankStepResult& row,
                Prediction& prediction) {
  const auto total = [&](const MicroBatch& batch) { return memory.at(batch.shape()).total(); };
  const Bytes peak = max_of(batches, total, Bytes());
  row.peak_memory_mib = static_cast<double>(peak.value()) / 0x1p20;
  if (capacity.value() > 0 && peak > capacity && !prediction.out_of_memory) {
    prediction.out_of_memory = OutOfMemory{row.step, row.rank, peak, capacity, std::nullopt};
  }
}

/// The run without noise: its rows, its timelines, and the times of its steady steps.
StepTimeTally run_without_noise(const PricedRun& run,
                                const PredictOptions& options,
                                Prediction& prediction) {
  StepSimulator simulator(run, {}, 1, nullptr, options.engine);
  const auto micro_batches = static_cast<std::size_t>(run.scenario().ddp.accumulation_steps);
  const PeakMemory memory(run.scenario().model, memory_options(run.scenario()));
  const Bytes capacity = run.profile().memory_capacity;
  StepTimeTally tally;
  std::size_t index = 0;
  for (int step = 0; step < run.plan().steps; ++step) {
    const bool kept = options.keep_timelines || options.timeline_of_step == step;
    StepTimeline timeline = simulator.next(kept);
    for (const RankTimeline& rank : timeline.ranks) {
      const std::span<const MicroBatch> batches(&run.plan().micro_batches[index], micro_batches);
      index += micro_batches;
      RankStepResult row = row_of(run, batches, rank);
      add_memory(memory, capacity, batches, row, prediction);
      prediction.steps.push_back(row);
    }
    if (step >= run.scenario().warmup_steps) {
      tally.add(timeline);
    }
    if (kept) {
      prediction.timelines.push_back(std::move(timeline));
    }
    if (options.on_progress && options.noise_runs == 0) {
      options.on_progress((step + 1.0) / run.plan().steps);
    }
  }
  if (options.keep_timelines) {
    prediction.op_labels = run.ddp_model().labels;
  }
  return tally;
}

/// The token budget that the device's memory allows at the longest length of the plan.
void add_token_budget(const PricedRun& run, Prediction& prediction) {
  const Bytes capacity = run.profile().memory_capacity;
  if (capacity.value() == 0) {
    return;
  }
  std::int64_t longest = 0;
  for (const MicroBatch& batch : run.plan().micro_batches) {
    longest = std::max(longest, batch.shape().max_length);
  }
  const Scenario& scenario = run.scenario();
  prediction.token_budget = TokenBudget{
      largest_token_budget(scenario.model, memory_options(scenario), capacity, longest), longest};
  if (prediction.out_of_memory) {
    prediction.out_of_memory->budget = prediction.token_budget;
  }
}

StepTimeSummary step_times_without_noise(const std::vector<double>& times) {
  const double average = mean(times);
  return {average,
          quantile(times, 0.5),
          quantile(times, 0.95),
          quantile(times, 0.99),
          quantile(times, 1.0),
          average,
          average};
}

/// The measured interference with its uncertain members drawn from their 90 % intervals.
Interference drawn_interference(const InterferenceProfile& measured, ErrorDraws& errors) {
  constexpr double kDeviations = 2 * 1.645;  // In a 90 % interval of a normal distribution.
  constexpr double kMaxShare = 0.99;
  Interference drawn = measured.value;
  for (const auto& [kind, member, interval] :
       {std::tuple("interference: compute", &drawn.compute, &measured.compute),
        std::tuple("interference: transfer", &drawn.transfer, &measured.transfer),
        std::tuple("interference: memory", &drawn.memory_share, &measured.memory_share)}) {
    if (*interval) {
      const double deviation = ((*interval)->second - (*interval)->first) / kDeviations;
      *member = std::max(0.0, *member + deviation * errors.normal(kind));
    }
  }
  drawn.memory_share = std::min(drawn.memory_share, kMaxShare);
  return drawn;
}

/// What other fits to a recorded model's steps make of a run's passes: factors, [draw].
struct PassDraws {
  std::vector<double> forward;
  std::vector<double> backward;
};

PassDraws pass_draws(const PricedRun& run) {
  if (!prices_recorded_model(run.scenario(), run.profile())) {
    return {};
  }
  const std::vector<BatchShape> shapes = mapped(
      run.plan().micro_batches, [&](const MicroBatch& batch) { return run.shape_of(batch); });
  const RecordedModel recorded = at_ranks(*run.profile().recorded, run.scenario().ranks);
  const bool varlen = recorded.model.attention == AttentionKind::Varlen;
  return {draw_ratios(recorded.forward, shapes, varlen),
          draw_ratios(recorded.backward, shapes, varlen)};
}

/// The ratio of a draw's fit to the fit itself; `place`: which draw, from 0 to 1. Passes and links
/// that were fitted together are drawn together.
double drawn_ratio(const std::vector<double>& ratios, double place) {
  return ratios.empty()
             ? 1.0
             : ratios[static_cast<std::size_t>(place * static_cast<double>(ratios.size()))];
}

/// One factor a group: its systematic error, and that of one draw's passes.
std::vector<double> drawn_groups(const PricedRun& run, const PassDraws& draws, ErrorDraws& errors) {
  const double place = draws.forward.empty() ? 0 : errors.place("passes");
  std::vector<double> factors;
  for (const ErrorGroup& group : run.model().groups()) {
    const double pass = group.name == kForwardPass    ? drawn_ratio(draws.forward, place)
                        : group.name == kBackwardPass ? drawn_ratio(draws.backward, place)
                                                      : 1;
    factors.push_back(pass * errors.factor(group.name, group.relative_sd));
  }
  return factors;
}

/// One draw of all errors that two policies or settings share.
CostFactors drawn_factors(const PricedRun& run, const PassDraws& draws, ErrorDraws& errors) {
  CostFactors factors;
  factors.group = drawn_groups(run, draws, errors);
  factors.collective = errors.factor("collectives", run.model().collective_error());
  const std::vector<double> links = run.model().collective_draws();
  if (!links.empty()) {
    factors.collective *= drawn_ratio(links, errors.place("passes"));
  }
  factors.host = errors.factor("host", run.scenario().host.error);
  factors.new_shapes =
      errors.factor("new shapes", shape_error(run.shape_costs(), run.shape_stalls()));
  if (run.takes_measured_interference()) {
    factors.interference = drawn_interference(*run.profile().interference, errors);
  }
  return factors;
}

/// One factor an octave of bytes. The error of a recorded model's all-reduces is that of single
/// sizes, which does not cancel between two bucket caps as a common one does. Empty for other
/// models.
std::vector<double> drawn_sizes(const PricedRun& run, ErrorDraws& errors) {
  constexpr int kOctaves = 41;  // Up to 1 TiB.
  const double error = run.model().collective_error();
  std::vector<double> factors;
  if (error > 0 && prices_recorded_model(run.scenario(), run.profile())) {
    for (int octave = 0; octave < kOctaves; ++octave) {
      factors.push_back(errors.factor(fmt::format("collectives of 2^{} bytes", octave), error));
    }
  }
  return factors;
}

/// Keeps generators apart: the golden ratio, by which no two seeds come close.
constexpr std::uint64_t kApart = 0x9E3779B97F4A7C15;

/// The strength of an interference that nobody stated: published steps under DDP ask for 0 to 1.
constexpr double kUnknownInterference = 0.5;

/// The noise of each draw has a generator of its own, so that it does not depend on how many
/// numbers another setting took before it: more ranks, or more buckets.
void add_paired_draws(const PricedRun& run, int runs, Prediction& prediction) {
  const PassDraws draws = pass_draws(run);
  ErrorDraws errors(run.scenario().seed, runs);
  for (int i = 1; i <= runs; ++i, errors.next()) {
    NoiseDraws noise(run.scenario().seed + kApart * static_cast<std::uint64_t>(i));
    CostFactors factors = drawn_factors(run, draws, errors);
    factors.collective_sizes = drawn_sizes(run, errors);
    std::vector<double> steps;
    play_steady_steps(run, factors, 1.0, noise, [&](const StepTimeline& timeline) {
      steps.push_back(to_ms(step_time(timeline)));
    });
    prediction.paired_step_ms.push_back(mean(steps));
  }
}

/// The standard deviation of what all prices have in common as an error, as those of other models
/// that no run has confirmed.
double common_error(const PricedRun& run) {
  const bool own = run.scenario().times || prices_recorded_model(run.scenario(), run.profile());
  return own ? 0 : run.profile().noise.other_models;
}

/// How much longer a step takes, as a fraction, for each unit of interference strength: a
/// collective and the compute that it overlaps slow each other by the strength.
double interference_effect(const PredictionSummary& summary, double step_ms) {
  return summary.communication_ms * summary.overlap_fraction / step_ms;
}

/// What the step takes more or less where the interference was not measured, drawn, as a factor:
/// its stated strength is off, or where nobody says anything, it is half-normal.
double drawn_interference_factor(const PricedRun& run, double effect, ErrorDraws& errors) {
  const Scenario& scenario = run.scenario();
  const bool measured = run.profile().interference && !scenario.interference_given;
  if (scenario.ranks == 1 || run.profile().host_is_device || measured) {
    return 1;
  }
  if (!scenario.interference_given) {
    return 1 + kUnknownInterference * std::abs(errors.normal("interference")) * effect;
  }
  const double strength = std::max(scenario.interference.compute, scenario.interference.transfer);
  return scenario.interference.active()
             ? 1 + std::max(-strength,
                            scenario.interference_error * errors.normal("interference")) *
                       effect
             : 1;
}

/// Runs in pairs: one under jitter alone, which the step statistics and all means are of, and one
/// under jitter, fit errors, drift and a common error, whose means give the 90 % interval. Returns
/// the times of the steps under jitter alone.
StepTimeTally run_with_noise(const PricedRun& run,
                             int runs,
                             const ProgressCallback& on_progress,
                             Prediction& prediction) {
  NoiseDraws noise(run.scenario().seed);
  const PassDraws draws = pass_draws(run);
  StepTimeTally tally;
  double largest = 0;
  ErrorDraws errors(run.scenario().seed, runs);
  const double common_sd = common_error(run);
  const double effect =
      interference_effect(prediction.summary, prediction.summary.step_time_ms.mean);
  std::vector<double> means;
  for (int i = 0; i < runs; ++i, errors.next()) {
    double largest_of_run = 0;
    play_steady_steps(run, {}, 1.0, noise, [&](const StepTimeline& timeline) {
      tally.add(timeline);
      largest_of_run = std::max(largest_of_run, tally.step_ms().back());
    });
    largest += largest_of_run / runs;

    const CostFactors factors = drawn_factors(run, draws, errors);
    const double drift = errors.factor("drift", run.profile().noise.drift);
    std::vector<double> drawn_ms;
    play_steady_steps(run, factors, drift, noise, [&](const StepTimeline& timeline) {
      drawn_ms.push_back(to_ms(step_time(timeline)));
    });
    prediction.draws.push_back({mean(drawn_ms), drift});
    means.push_back(mean(drawn_ms) * errors.factor("prices", common_sd) *
                    drawn_interference_factor(run, effect, errors));
    if (on_progress) {
      on_progress(static_cast<double>(i + 1) / runs);
    }
  }
  const std::vector<double>& all = tally.step_ms();
  prediction.summary.step_time_ms = {mean(all),
                                     quantile(all, 0.5),
                                     quantile(all, 0.95),
                                     quantile(all, 0.99),
                                     largest,
                                     quantile(means, 0.05),
                                     quantile(means, 0.95)};
  return tally;
}

/// Noise runs that a program of the engine affords: each step costs about a microsecond per op.
int affordable_runs(const PricedRun& run, int wanted) {
  constexpr double kMaxOps = 1e7;
  const double ops = static_cast<double>(run.plan().micro_batches.size()) *
                     static_cast<double>(run.model().ops_per_micro_batch());
  const int least = std::min(wanted, 20);
  return run.plain() ? wanted
                     : std::clamp(static_cast<int>(kMaxOps / std::max(ops, 1.0)), least, wanted);
}

}  // namespace

MemoryOptions memory_options(const Scenario& scenario) {
  MemoryOptions memory;
  memory.gradient_as_bucket_view = scenario.ddp.gradient_as_bucket_view;
  memory.optimizer_bytes_per_parameter = scenario.optimizer_bytes_per_parameter;
  memory.activation_checkpointing = scenario.activation_checkpointing;
  memory.zero_stage = scenario.ddp.zero_stage;
  memory.ranks = scenario.ranks;
  memory.working_bucket = scenario.ddp.bucket_cap;
  return memory;
}

Prediction predict(const Scenario& scenario,
                   const BatchingPolicy& policy,
                   const Profile& profile,
                   const PredictOptions& options) {
  const PricedRun run(scenario, policy, profile, options.counterfactual);
  Prediction prediction;
  prediction.scenario = scenario.name;
  prediction.policy = policy.name();
  prediction.varlen = run.planned().varlen;
  if (options.on_planned) {
    options.on_planned(run.planned().planning_seconds);
  }
  if (options.training_effects) {
    prediction.training = first_epoch_effects(run.scenario(), policy, run.planned());
  }
  prediction.profile = profile.name;
  prediction.profile_id = profile.id.text;
  StepTimeTally times = run_without_noise(run, options, prediction);
  summarise_work(prediction.steps, scenario.warmup_steps, prediction.ranks, prediction.summary);
  times.set_means(prediction.ranks, prediction.summary);
  prediction.summary.step_time_ms = step_times_without_noise(times.step_ms());
  if (options.noise_runs > 0) {
    const int runs = affordable_runs(run, options.noise_runs);
    times = run_with_noise(run, runs, options.on_progress, prediction);
    times.set_means(prediction.ranks, prediction.summary);
    if (options.paired_draws) {
      add_paired_draws(run, runs, prediction);
    }
  }
  prediction.shapes = shape_summary(run, prediction);
  add_token_budget(run, prediction);
  add_notes(run, prediction);
  return prediction;
}

std::vector<Prediction> predict_policies(const Scenario& scenario,
                                         const Profile& profile,
                                         const PredictOptions& options) {
  std::vector<Prediction> predictions;
  const auto count = static_cast<double>(scenario.policies.size());
  PredictOptions of_one = options;
  of_one.on_progress = [&](double share) {
    if (options.on_progress) {
      options.on_progress((static_cast<double>(predictions.size()) + share) / count);
    }
  };
  for (const BatchingPolicy& policy : scenario.policies) {
    predictions.push_back(predict(scenario, policy, profile, of_one));
  }
  return predictions;
}

}  // namespace stepsim
