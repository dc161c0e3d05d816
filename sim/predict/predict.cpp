#include "sim/predict/predict.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/memory.h"
#include "sim/predict/draws/noise_runs.h"
#include "sim/predict/metrics.h"
#include "sim/predict/prediction_notes.h"
#include "sim/predict/run/plain_player.h"
#include "sim/predict/step_cost.h"
#include "sim/predict/step_simulator.h"

namespace stepsim {

namespace {

/// The peak memory of each different batch, in MiB.
std::vector<double> peaks_mib(const Run& run) {
  const PeakMemory memory(run.scenario().model, memory_options(run.scenario()));
  return mapped(run.planned().different, [&](const RunBatch& batch) {
    return static_cast<double>(memory.at(batch.shape).total().value()) / 0x1p20;
  });
}

/// One rank's row of one step: its micro-batches together.
RankStepResult row_of(const Run& run,
                      const std::vector<double>& peaks,
                      int step,
                      int rank,
                      const RankTimeline& times) {
  RankStepResult row;
  static_cast<RankTimes&>(row) = rank_times(times);
  row.step = step;
  row.rank = rank;
  const std::size_t micro_batches = at(run.scenario().ddp.accumulation_steps);
  const std::size_t first = (at(step) * at(run.scenario().ranks) + at(rank)) * micro_batches;
  for (std::size_t i = first; i < first + micro_batches; ++i) {
    const RunBatch& batch = run.batch(i);
    row.samples += batch.samples;
    row.max_length = std::max(row.max_length, batch.shape.max_length);
    row.useful_tokens += batch.shape.useful_tokens;
    row.padded_tokens += run.pricer().input_tokens(batch.shape);
    row.peak_memory_mib = std::max(row.peak_memory_mib, peaks[run.planned().batches[i]]);
  }
  row.start_ms = to_ms(times.start.time_since_epoch());
  return row;
}

/// Notes the row that does not fit and needs most.
void note_out_of_memory(const RankStepResult& row, Bytes capacity, Prediction& prediction) {
  const Bytes peak(static_cast<std::int64_t>(row.peak_memory_mib * 0x1p20));  // Exact.
  const bool is_most = !prediction.out_of_memory || peak > prediction.out_of_memory->needed;
  if (capacity.value() > 0 && peak > capacity && is_most) {
    prediction.out_of_memory = OutOfMemory{row.step, row.rank, peak, capacity, std::nullopt, false};
  }
}

/// Looks at the whole first epoch, since a few steps seldom have the longest samples: what its
/// largest batch needs, and the one that does not fit and needs most.
void add_epoch_memory(const Run& run, Prediction& prediction) {
  const Bytes capacity = run.profile().memory_capacity;
  const PeakMemory memory(run.scenario().model, memory_options(run.scenario()));
  prediction.largest_memory_mib = prediction.summary.peak_memory_mib;
  for (const EpochBatch& batch : run.planned().largest_of_epoch) {
    const Bytes peak = memory.at(batch.shape).total();
    prediction.largest_memory_mib =
        std::max(prediction.largest_memory_mib, static_cast<double>(peak.value()) / 0x1p20);
    const bool is_most = !prediction.out_of_memory || peak > prediction.out_of_memory->needed;
    if (capacity.value() > 0 && peak > capacity && is_most) {
      prediction.out_of_memory = OutOfMemory{
          batch.step, batch.rank, peak, capacity, std::nullopt, batch.step >= run.scenario().steps};
    }
  }
}

/// Plays the steps without noise, by rows where that gives all that is kept of them.
class StepPlayer {
 public:
  StepPlayer(Run& run, const PredictOptions& options, bool keeps) {
    if (!options.engine && !keeps && PlainPlayer::plays(run)) {
      plain_.emplace(run);
    } else {
      simulator_.emplace(run, CostFactors(), 1, nullptr, options.engine);
    }
  }

  /// The next step, until it is called again.
  const StepTimeline& next(bool record_spans) {
    if (plain_) {
      return plain_->next();
    }
    timeline_ = simulator_->next(record_spans);
    return timeline_;
  }

 private:
  std::optional<PlainPlayer> plain_;
  std::optional<StepSimulator> simulator_;
  StepTimeline timeline_;
};

/// The run without noise: its rows, the means of its work, its timelines, and the times of its
/// steady steps.
StepTimeTally run_without_noise(Run& run, const PredictOptions& options, Prediction& prediction) {
  const Scenario& scenario = run.scenario();
  const std::optional<LargestBatch> drawn = options.memory_curve && has_memory_curve(scenario)
                                                ? std::optional(largest_batch(run))
                                                : std::nullopt;
  StepPlayer player(run, options, options.keep_timelines || options.timeline_of_step || drawn);
  const std::vector<double> peaks = peaks_mib(run);
  const bool keep_rows = options.rows != KeptRows::None || !run.loads().shape_costs.empty();
  StepTimeTally times;
  WorkTally work(scenario.steps - scenario.warmup_steps);
  std::vector<RankStepResult> rows;
  prediction.steps.reserve(keep_rows ? at(scenario.steps) * at(scenario.ranks) : 0);
  for (int step = 0; step < scenario.steps; ++step) {
    const bool kept = options.keep_timelines || options.timeline_of_step == step;
    const bool steady = step >= scenario.warmup_steps;
    const bool draws = drawn && drawn->step == step;
    const StepTimeline& timeline = player.next(kept || draws);
    if (draws) {
      prediction.memory_curve = memory_curve(run, *drawn, timeline);
    }
    rows.clear();
    for (int rank = 0; rank < scenario.ranks; ++rank) {
      rows.push_back(row_of(run, peaks, step, rank, timeline.ranks[at(rank)]));
      note_out_of_memory(rows.back(), run.profile().memory_capacity, prediction);
    }
    work.add(rows, steady);
    if (keep_rows) {
      prediction.steps.insert(prediction.steps.end(), rows.begin(), rows.end());
    }
    if (steady) {
      times.add(timeline);
    }
    if (kept) {
      prediction.timelines.push_back(timeline);
    }
    if (options.on_progress && options.noise_runs == 0) {
      options.on_progress((step + 1.0) / scenario.steps);
    }
  }
  if (options.keep_timelines) {
    prediction.op_labels = run.reduced().model().labels;
  }
  work.set_means(prediction.ranks, prediction.summary);
  return times;
}

/// The token budget that the device's memory allows at the longest length of the plan.
void add_token_budget(const Run& run, Prediction& prediction) {
  const Bytes capacity = run.profile().memory_capacity;
  if (capacity.value() == 0 || !states_activations(run.scenario().model)) {
    return;
  }
  const std::int64_t longest = max_of(
      run.planned().different,
      [](const RunBatch& batch) { return batch.shape.max_length; },
      run.planned().longest_of_epoch);
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
          step_quantile(times, 0.5),
          step_quantile(times, 0.95),
          step_quantile(times, 0.99),
          step_quantile(times, 1.0),
          average,
          average,
          average,
          average};
}

}  // namespace

MemoryOptions memory_options(const Scenario& scenario) {
  MemoryOptions memory = scenario.parallel->memory(parallel_job(scenario));
  memory.optimizer_bytes_per_parameter = scenario.optimizer_bytes_per_parameter;
  memory.checkpointing = scenario.checkpointing;
  memory.loss_in_own_dtype = scenario.loss_in_own_dtype;
  return memory;
}

Prediction predict(const Job& job, const PredictOptions& options) {
  check_memory(
      job.scenario(), job.policy(), {options.rows, options.noise_runs, options.training_effects});
  Run run(job, options.counterfactual);
  Prediction prediction;
  prediction.scenario = run.scenario().name;
  prediction.policy = run.policy().name();
  prediction.varlen = run.planned().data->varlen;
  if (options.on_planned) {
    options.on_planned(run.planned().data->planning_seconds);
  }
  if (options.training_effects) {
    prediction.training = run.training_effects();
  }
  prediction.summary.tokens_per_sample = run.planned().tokens_per_sample;
  prediction.profile = run.profile().name;
  prediction.profile_id = run.profile().id.text;
  prediction.unconfirmed = !run.scenario().times && !run.profile().links &&
                           !prices_recorded_model(run.scenario(), run.profile());
  const StepTimeTally times = run_without_noise(run, options, prediction);
  times.set_means(prediction.ranks, prediction.summary);
  prediction.summary.step_time_ms = step_times_without_noise(times.step_ms());
  if (options.noise_runs > 0) {
    add_noise_runs(run,
                   {options.noise_runs,
                    options.paired_draws,
                    options.most_noisy_steps,
                    options.threads,
                    options.on_progress},
                   times.step_ms(),
                   prediction);
  }
  add_epoch_memory(run, prediction);
  prediction.shapes = shape_summary(run, prediction);
  add_token_budget(run, prediction);
  add_notes(run, prediction);
  return prediction;
}

Prediction predict(const Scenario& scenario,
                   const BatchingPolicy& policy,
                   const Profile& profile,
                   const PredictOptions& options) {
  return predict(Job(scenario, policy, profile), options);
}

Bytes missing_memory(const Scenario& scenario,
                     const BatchingPolicy& policy,
                     const Profile& profile) {
  PredictOptions options;
  options.noise_runs = 0;
  options.rows = KeptRows::None;
  const auto misfit = predict(scenario, policy, profile, options).out_of_memory;
  return misfit ? Bytes(misfit->needed.value() - misfit->capacity.value()) : Bytes();
}

std::vector<Prediction> predict_policies(Jobs& jobs, const PredictOptions& options) {
  std::vector<Prediction> predictions;
  const auto count = static_cast<double>(jobs.base().policies.size());
  PredictOptions of_one = options;
  of_one.on_progress = [&](double share) {
    if (options.on_progress) {
      options.on_progress((static_cast<double>(predictions.size()) + share) / count);
    }
  };
  for (const BatchingPolicy& policy : jobs.base().policies) {
    predictions.push_back(predict(jobs.job(policy.name(), {}), of_one));
  }
  return predictions;
}

}  // namespace stepsim
