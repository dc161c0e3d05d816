#include "sim/predict.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <fmt/core.h>

#include "costmodel/memory.h"
#include "sim/batch_plan.h"
#include "sim/ddp/closed_form.h"
#include "sim/ddp/step_simulator.h"
#include "sim/metrics.h"
#include "sim/priced_model.h"

namespace stepsim {

namespace {

/// Noise drawn by our own code: the distributions of <random> differ between libraries.
class NoiseDraws {
 public:
  explicit NoiseDraws(std::uint64_t seed) : generator_(seed) {}

  double next() {
    // Box-Muller; u in (0, 1].
    const double u = (static_cast<double>(generator_() >> 11) + 1.0) * 0x1p-53;
    const double v = static_cast<double>(generator_() >> 11) * 0x1p-53;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

  /// A factor with median 1 and relative spread sd.
  double factor(double sd) { return std::exp(sd * next()); }

  /// A draw from a distribution given by evenly spaced quantiles; 1 when there are none.
  double from(const std::vector<double>& quantiles) {
    if (quantiles.empty()) {
      return 1.0;
    }
    const double position = static_cast<double>(generator_() >> 11) * 0x1p-53 *
                            static_cast<double>(quantiles.size() - 1);
    const auto low = static_cast<std::size_t>(position);
    return quantiles[low] +
           (position - static_cast<double>(low)) * (quantiles[low + 1] - quantiles[low]);
  }

 private:
  std::mt19937_64 generator_;
};

/// Everything of a run that does not change from one noise draw to the next.
struct Run {
  const Scenario& scenario;
  const Profile& profile;
  const Plan& plan;
  PricedModel& model;
  BucketCosts initial;
  BucketCosts rebuilt;
  std::vector<const PricedBatch*> batches;  ///< [step * ranks + rank]
  std::vector<double> rank_factor;          ///< [rank] slow ranks
  double jitter = 0;
  std::vector<double> all_reduce_spread;  ///< Quantiles of a single all-reduce over its mean.

  [[nodiscard]] const BucketCosts& buckets(int step) const { return step == 0 ? initial : rebuilt; }
};

StepInput step_input(
    const Run& run, int step, const CostFactors& factors, double common, NoiseDraws* noise) {
  const BucketCosts& buckets = run.buckets(step);
  StepInput input;
  input.host_is_device = run.profile.host_is_device;
  const auto ranks = static_cast<std::size_t>(run.scenario.ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    double factor = common * run.rank_factor[rank];
    if (noise != nullptr) {
      factor *= noise->factor(run.jitter);
    }
    input.ranks.push_back(run.model.fold(
        *run.batches[static_cast<std::size_t>(step) * ranks + rank], buckets, factors, factor));
  }
  for (const double seconds : buckets.all_reduce) {
    const double scatter = noise != nullptr ? noise->from(run.all_reduce_spread) : 1.0;
    input.all_reduce.push_back(to_duration(seconds * common * factors.collective * scatter));
  }
  return input;
}

/// Step times (ms, see StepTimeSummary) of the steady steps of one run.
std::vector<double> steady_step_times(const Run& run,
                                      const CostFactors& factors,
                                      double common,
                                      NoiseDraws& noise) {
  std::vector<RankClock> clocks(static_cast<std::size_t>(run.scenario.ranks));
  std::vector<double> times;
  for (int step = 0; step < run.plan.steps; ++step) {
    const StepInput input = step_input(run, step, factors, common, &noise);
    StepTimeline timeline = closed_form_step(input, clocks);
    clocks = std::move(timeline.clocks);
    if (step < run.scenario.warmup_steps) {
      continue;
    }
    SimTime start = timeline.ranks.front().start;
    SimTime end = timeline.ranks.front().end;
    for (const RankTimeline& rank : timeline.ranks) {
      start = std::max(start, rank.start);
      end = std::max(end, rank.end);
    }
    times.push_back(to_ms(end - start));
  }
  return times;
}

/// Adds the communication figures of one steady step, each divided by the number of such steps.
void add_communication(const StepTimeline& timeline, double steps, double& busy, double& hidden) {
  SimTime backward_end{};
  for (const RankTimeline& rank : timeline.ranks) {
    backward_end = std::max(backward_end, rank.backward_end);
  }
  for (std::size_t b = 0; b < timeline.reduce_end.size(); ++b) {
    busy += to_ms(timeline.reduce_end[b] - timeline.reduce_start[b]) / steps;
    const SimTime until = std::min(timeline.reduce_end[b], backward_end);
    hidden += std::max(0.0, to_ms(until - timeline.reduce_start[b])) / steps;
  }
}

RankStepResult row_of(const MicroBatch& batch, const RankTimeline& times) {
  const BatchShape shape = batch.shape();
  RankStepResult row;
  row.step = batch.step;
  row.rank = batch.rank;
  row.samples = shape.samples;
  row.max_length = shape.max_length;
  row.useful_tokens = shape.useful_tokens;
  row.padded_tokens = shape.padded_tokens();
  row.start_ms = to_ms(times.start.time_since_epoch());
  row.data_ms = to_ms(times.data_end - times.start);
  row.forward_ms = to_ms(times.forward_end - times.data_end);
  row.backward_ms = to_ms(times.backward_end - times.forward_end);
  row.exposed_ms = to_ms(times.exposed);
  row.optimizer_ms = to_ms(times.copy_out + times.optimizer);
  row.step_ms = to_ms(times.end - times.start);
  return row;
}

/// The noise-free run: rows, timelines, communication figures.
void run_without_noise(const Run& run, const PredictOptions& options, Prediction& prediction) {
  std::vector<RankClock> clocks(static_cast<std::size_t>(run.scenario.ranks));
  const MemoryOptions memory{run.scenario.ddp.gradient_as_bucket_view,
                             run.scenario.optimizer_bytes_per_parameter,
                             0,
                             run.scenario.activation_checkpointing};
  const Bytes capacity = run.profile.memory_capacity;
  const double steady = run.plan.steps - run.scenario.warmup_steps;
  double busy = 0;
  double hidden = 0;
  std::size_t index = 0;
  for (int step = 0; step < run.plan.steps; ++step) {
    const StepInput input = step_input(run, step, {}, 1.0, nullptr);
    StepTimeline timeline =
        options.event_simulation ? simulate_step(input, clocks) : closed_form_step(input, clocks);
    for (const RankTimeline& rank : timeline.ranks) {
      const MicroBatch& batch = run.plan.micro_batches[index++];
      RankStepResult row = row_of(batch, rank);
      const Bytes peak = peak_memory(run.scenario.model, batch.shape(), memory).total();
      row.peak_memory_mib = static_cast<double>(peak.value()) / 0x1p20;
      if (capacity.value() > 0 && peak > capacity && prediction.out_of_memory.empty()) {
        prediction.out_of_memory = fmt::format("step {}, rank {}: needs {:.1f} GiB of {:.1f} GiB",
                                               row.step,
                                               row.rank,
                                               static_cast<double>(peak.value()) / 0x1p30,
                                               static_cast<double>(capacity.value()) / 0x1p30);
      }
      prediction.steps.push_back(row);
    }
    if (step >= run.scenario.warmup_steps) {
      add_communication(timeline, steady, busy, hidden);
    }
    clocks = timeline.clocks;
    if (options.keep_timelines) {
      prediction.timelines.push_back(std::move(timeline));
    }
  }
  prediction.summary.communication_ms = busy;
  prediction.summary.overlap_fraction = busy > 0 ? hidden / busy : 0;
}

StepTimeSummary step_times_without_noise(const Prediction& prediction, int warmup_steps) {
  GlobalSteps steps;
  for (const RankStepResult& row : prediction.steps) {
    if (row.step >= warmup_steps) {
      steps.add(0, row.step, row.start_ms, row.step_ms);
    }
  }
  const std::vector<double> times = steps.all_ms();
  const double average = mean(times);
  return {
      average, quantile(times, 0.5), quantile(times, 0.95), quantile(times, 1.0), average, average};
}

/// Step statistics under jitter, and the 90 % interval of the mean under jitter, fit errors, drift.
void add_noise(const Run& run, int runs, StepTimeSummary& times) {
  NoiseDraws noise(run.scenario.seed);
  std::vector<double> all;
  double largest = 0;
  std::vector<double> means;
  for (int i = 0; i < runs; ++i) {
    const auto steady = steady_step_times(run, {}, 1.0, noise);
    all.insert(all.end(), steady.begin(), steady.end());
    largest += quantile(steady, 1.0) / runs;

    CostFactors factors;
    for (const ErrorGroup& group : run.model.groups()) {
      factors.group.push_back(noise.factor(group.relative_sd));
    }
    factors.collective = noise.factor(run.model.collective_error());
    const double drift = noise.factor(run.profile.noise.drift);
    means.push_back(mean(steady_step_times(run, factors, drift, noise)));
  }
  times = {mean(all),
           quantile(all, 0.5),
           quantile(all, 0.95),
           largest,
           quantile(means, 0.05),
           quantile(means, 0.95)};
}

void add_warnings(const PricedModel& model, const Run& run, Prediction& prediction) {
  std::string unseen;
  for (const ExtrapolationNote& note : model.notes()) {
    if (note.factor > 1) {
      prediction.warnings.push_back(fmt::format(
          "{}: {:.2g} times beyond the sizes that the profile measured", note.op, note.factor));
    }
    if (note.unseen_shape) {
      unseen += (unseen.empty() ? "" : ", ") + note.op;
    }
  }
  if (!unseen.empty()) {
    prediction.warnings.push_back(
        "priced by the general form of the class, since the profile never measured these sizes: " +
        unseen);
  }
  if (!prediction.out_of_memory.empty()) {
    prediction.warnings.push_back("out of memory: " + prediction.out_of_memory);
  }
  if (run.scenario.ranks > 1 && run.scenario.ranks_per_node > 0 &&
      run.scenario.ranks_per_node < run.scenario.ranks) {
    prediction.warnings.push_back(
        "the profile's collective table is used as it is for ranks on several nodes");
  }
}

}  // namespace

Prediction predict(const Scenario& scenario,
                   const PolicySpec& policy,
                   const Profile& profile,
                   const PredictOptions& options) {
  const Plan plan = make_plan(scenario, policy);
  const ProfileCostModel costs(profile);
  PricedModel model(scenario, costs);
  const BucketLists lists = bucket_lists(scenario);
  Run run{scenario, profile, plan, model, {}, {}, {}, {}, 0, {}};
  run.initial = model.bucket_costs(lists.initial);
  run.rebuilt = model.bucket_costs(lists.rebuilt);
  for (const MicroBatch& batch : plan.micro_batches) {
    run.batches.push_back(&model.price(batch.shape()));
  }
  run.rank_factor.assign(static_cast<std::size_t>(scenario.ranks), 1.0);
  for (const SlowRank& slow : scenario.slow_ranks) {
    run.rank_factor[static_cast<std::size_t>(slow.rank)] *= slow.factor;
  }
  run.all_reduce_spread = costs.all_reduce_spread(scenario.ranks);
  run.jitter = scenario.jitter > 0 ? scenario.jitter : profile.noise.step_jitter;

  Prediction prediction;
  prediction.scenario = scenario.name;
  prediction.policy = policy.name;
  prediction.profile = profile.name;
  run_without_noise(run, options, prediction);
  summarise(prediction.steps, scenario.ranks, scenario.warmup_steps, prediction.summary);
  prediction.summary.step_time_ms = step_times_without_noise(prediction, scenario.warmup_steps);
  if (options.noise_runs > 0) {
    add_noise(run, options.noise_runs, prediction.summary.step_time_ms);
  }
  add_warnings(model, run, prediction);
  return prediction;
}

}  // namespace stepsim
