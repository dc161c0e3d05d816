#include "sim/predict/draws/noise_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "costmodel/base/quantile.h"
#include "sim/predict/draws/drawn_factors.h"
#include "sim/predict/draws/played_draws.h"
#include "sim/predict/draws/stall_draws.h"
#include "sim/predict/metrics.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

/// The strength of an interference that nobody stated: published steps under DDP ask for 0 to 1.
constexpr double kUnknownInterference = 0.5;

/// The standard deviation of what all prices have in common as an error, as those of other models
/// that no run has confirmed.
double common_error(const Run& run) {
  const bool own = run.scenario().times || prices_recorded_model(run.scenario(), run.profile());
  return own ? 0 : run.profile().noise.other_models;
}

/// What the steps of one policy take more or less than the fit to recorded steps says, in the same
/// direction all of them: the order of its batches, the memory that they find, and what other
/// programs happen to take meanwhile. Relative standard deviation, chosen on records of two ranks
/// and confirmed on four (tests/live/CROSS.md).
double policy_error(const Run& run) {
  constexpr double kOfPolicy = 0.02;
  return !run.scenario().times && prices_recorded_model(run.scenario(), run.profile())
             ? std::hypot(kOfPolicy, run.profile().noise.crowded.run_spread)
             : 0;
}

/// How far off the machine's speed is at another hour, which all policies have in common. Where
/// other programs ran, there may then be none, or twice as much of them.
double machine_error(const Run& run) {
  const NoiseProfile& noise = run.profile().noise;
  return std::hypot(noise.drift, std::log(noise.crowded.slowed));
}

/// How much longer a step takes, as a fraction, for each unit of interference strength: a
/// collective and the compute that it overlaps slow each other by the strength.
double interference_effect(const PredictionSummary& summary, double step_ms) {
  return summary.communication_ms * summary.overlap_fraction / step_ms;
}

/// Whether neither the scenario nor the profile says how GPUs' compute and transfers slow each
/// other.
bool interference_is_unknown(const Run& run) {
  return run.scenario().ranks > 1 && !run.profile().host_is_device &&
         !run.scenario().interference_given && !run.profile().interference;
}

/// What the step takes more or less where the interference was not measured, drawn, as a factor:
/// its stated strength is off, or where nobody says anything, it is half-normal.
double drawn_interference_factor(const Run& run, double effect, ErrorDraws& errors) {
  const Scenario& scenario = run.scenario();
  if (interference_is_unknown(run)) {
    return 1 + kUnknownInterference * std::abs(errors.normal("interference")) * effect;
  }
  if (scenario.ranks == 1 || run.profile().host_is_device || !scenario.interference_given) {
    return 1;
  }
  const double strength = std::max(scenario.interference.compute, scenario.interference.transfer);
  return scenario.interference.active()
             ? 1 + std::max(-strength,
                            scenario.interference_error * errors.normal("interference")) *
                       effect
             : 1;
}

/// What a step takes more, in milliseconds, where compute and collectives that overlap slow each
/// other in a fit that explains the steps as well: the part of the overlap that is lost. As much
/// hides as does without, but no more than the drawn collectives take.
double lost_overlap_ms(const PredictionSummary& summary, double slowdown, double collectives) {
  const double hidden = summary.communication_ms * summary.overlap_fraction;
  return slowdown / (1 + slowdown) * std::min(hidden, summary.communication_ms * collectives);
}

/// At least 20 runs are made, unless fewer are wanted.
int between(double runs, int wanted) {
  const int least = std::min(wanted, 20);
  return static_cast<int>(
      std::clamp(runs, static_cast<double>(least), static_cast<double>(wanted)));
}

/// Noise runs that a program of the engine affords, where each step costs some 300 ns per op with
/// events, a third of that without, and in lockstep a tenth of that again; and that the steps of
/// very many ranks afford.
int affordable_runs(Run& run, int wanted) {
  const double most_ops = run.reduced().draws_in_lockstep() ? 2e8
                          : run.reduced().plays_in_order()  ? 6e7
                                                            : 2e7;
  const auto batches = static_cast<double>(run.batches());
  const double ops = batches * static_cast<double>(run.pricer().ops_per_micro_batch());
  return run.reduced().plain() ? affordable_plain_runs(batches, wanted)
                               : between(most_ops / std::max(ops, 1.0), wanted);
}

/// Adds stalls to the means and the tail; the interval holds them. `step_ms`: all steps of all
/// draws.
void add_stalls(const StallDraws& stalls,
                std::vector<double> step_ms,
                int steps,
                Prediction& prediction) {
  if (!stalls.any() || step_ms.empty()) {
    return;
  }
  stalls.add_to(step_ms);
  PredictionSummary& summary = prediction.summary;
  StepTimeSummary& step = summary.step_time_ms;
  step.mean += stalls.mean_ms();
  step.p50 = step_quantile(step_ms, 0.5);
  step.p95 = step_quantile(step_ms, 0.95);
  step.p99 = step_quantile(step_ms, 0.99);
  // In a run that has any, the longest step is one of them.
  const double has_any = 1 - std::pow(1 - stalls.per_step(), steps);
  const double longest = step.p50 + stalls.longest_ms();
  step.max += has_any * std::max(0.0, longest - step.max);
  summary.data_ms += stalls.mean_ms();
  for (RankMeans& rank : prediction.ranks) {
    rank.data_ms += stalls.mean_ms();
    rank.step_ms += stalls.mean_ms();
  }
}

/// The steps that runs with noise play.
struct NoisySteps {
  std::vector<int> numbers;  ///< The first step, then steady ones, or all.
  double scale = 1;          ///< The mean of all steady steps over that of those played.
};

/// `step_ms`: the steady steps without noise.
NoisySteps noisy_steps(const Run& run, int most, const std::vector<double>& step_ms) {
  const int first = run.scenario().warmup_steps;
  const int steady = run.scenario().steps - first;
  NoisySteps steps;
  if (most == 0 || steady <= most || !run.reduced().plain()) {
    steps.numbers.resize(at(run.scenario().steps));
    std::iota(steps.numbers.begin(), steps.numbers.end(), 0);
    return steps;
  }
  if (first > 0) {
    steps.numbers.push_back(0);
  }
  std::vector<double> played;
  for (int i = 0; i < most; ++i) {
    const int step = static_cast<int>(std::int64_t{i} * steady / most);
    steps.numbers.push_back(first + step);
    played.push_back(step_ms[at(step)]);
  }
  steps.scale = mean(step_ms) / mean(played);
  return steps;
}

/// The intervals of 50, 80, 90 and 95 %. `means`, `same_hour`: [draw] milliseconds.
std::vector<MeanInterval> intervals_of(std::vector<double> means, std::vector<double> same_hour) {
  struct Level {
    int percent;
    double below;
  };
  constexpr std::array<Level, 4> kLevels = {{{50, 0.25}, {80, 0.1}, {90, 0.05}, {95, 0.025}}};
  std::ranges::sort(means);
  std::ranges::sort(same_hour);
  std::vector<MeanInterval> intervals;
  for (const Level& level : kLevels) {
    const double low = sorted_quantile(means, level.below);
    const double high = sorted_quantile(means, 1 - level.below);
    // By chance drift and other errors make up for one another.
    intervals.push_back({level.percent,
                         low,
                         high,
                         std::max(sorted_quantile(same_hour, level.below), low),
                         std::min(sorted_quantile(same_hour, 1 - level.below), high)});
  }
  return intervals;
}

}  // namespace

int affordable_plain_runs(double batches, int wanted) {
  constexpr double kMaxRankSteps = 1.5e8;
  return between(kMaxRankSteps / batches, wanted);
}

void add_noise_runs(Run& run,
                    const NoiseRunOptions& options,
                    const std::vector<double>& step_ms,
                    Prediction& prediction) {
  const int count = affordable_runs(run, options.runs);
  const PassDraws passes(run);
  ErrorDraws errors(run.scenario().seed, count);
  const double common_sd = common_error(run);
  const double policy_sd = policy_error(run);
  const std::string of_policy = "steps of " + run.policy().name();
  const double effect =
      interference_effect(prediction.summary, prediction.summary.step_time_ms.mean);
  std::vector<Draw> draws;
  std::vector<double> drifts;
  std::vector<double> of_steps;
  std::vector<double> lost_ms;  // What is drawn on top of a run's mean,
  std::vector<double> further;  // and as a factor.
  for (int i = 0; i < count; ++i, errors.next()) {
    CostFactors factors = drawn_factors(run, passes, errors);
    drifts.push_back(errors.factor("drift", machine_error(run)));
    of_steps.push_back(errors.factor(of_policy, policy_sd));
    const std::optional<double> slowdown = drawn_slowdown(run, errors);
    lost_ms.push_back(slowdown
                          ? drifts.back() * of_steps.back() *
                                lost_overlap_ms(prediction.summary, *slowdown, factors.collective)
                          : 0);
    further.push_back(errors.factor("prices", common_sd) *
                      (slowdown ? 1 : drawn_interference_factor(run, effect, errors)));
    Draw& draw = draws.emplace_back(Draw{{}, {factors, drifts.back()}});
    if (options.paired) {
      factors.collective_sizes = drawn_sizes(run, errors);
      draw.push_back({std::move(factors), 1});
    }
  }
  const NoisySteps steps = noisy_steps(run, options.most_steps, step_ms);
  PlayedDraws played = play_draws(run, draws, steps.numbers, options.threads, options.on_progress);
  played.scale(steps.scale);
  const std::vector<double>& all = played.jitter.step_ms();
  const int steady = run.scenario().steps - run.scenario().warmup_steps;
  const StallDraws stalls(run.profile().noise.stalls, mean(all), steady);
  ErrorDraws of_stalls(run.scenario().seed, count);
  std::vector<double> means;
  std::vector<double> same_hour;
  if (options.paired) {
    prediction.paired_step_ms = played.mean_ms[2];
  }
  for (std::size_t i = 0; i < draws.size(); ++i, of_stalls.next()) {
    const double drawn_ms = played.mean_ms[1][i] * of_steps[i];
    const double stall_ms = stalls.any() ? stalls.drawn_ms(run.policy().name(), of_stalls) : 0;
    prediction.draws.push_back({drawn_ms + stall_ms, drifts[i]});
    const double all_ms = (drawn_ms + lost_ms[i]) * further[i];
    means.push_back(all_ms + stall_ms);
    same_hour.push_back(all_ms / drifts[i] + stall_ms);
    if (options.paired) {
      prediction.paired_step_ms[i] = prediction.paired_step_ms[i] * of_steps[i] + stall_ms;
    }
  }
  const double step_ms_mean = mean(all);
  prediction.intervals = intervals_of(std::move(means), std::move(same_hour));
  if (interference_is_unknown(run)) {
    // The mean counts it as none, which every draw of it exceeds: an interval reaches from the one
    // to the others.
    for (MeanInterval& interval : prediction.intervals) {
      interval.low = std::min(interval.low, step_ms_mean);
      interval.same_hour_low = std::min(interval.same_hour_low, step_ms_mean);
    }
  }
  const auto of90 = std::ranges::find(prediction.intervals, 90, &MeanInterval::percent);
  prediction.summary.step_time_ms = {step_ms_mean,
                                     step_quantile(all, 0.5),
                                     step_quantile(all, 0.95),
                                     step_quantile(all, 0.99),
                                     mean(played.longest_ms),
                                     of90->low,
                                     of90->high,
                                     of90->same_hour_low,
                                     of90->same_hour_high};
  played.jitter.set_means(prediction.ranks, prediction.summary);
  add_stalls(stalls, all, steady, prediction);
}

}  // namespace stepsim
