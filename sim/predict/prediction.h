#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/batching/training_effects.h"
#include "sim/batching/varlen_epoch.h"
#include "sim/parallel/step.h"
#include "sim/predict/memory_curve.h"
#include "sim/predict/note.h"
#include "sim/predict/shape_summary.h"

namespace stepsim {

/// What one rank does in a step, in milliseconds. The parts follow one another and add up to
/// `step_ms`, the time from the rank's own start of the step to its own end.
struct RankTimes {
  double data_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double exposed_ms = 0;    ///< The device waits for collectives after the backward.
  double waiting_ms = 0;    ///< Of exposed_ms: for slower ranks to arrive. Not a part of its own.
  double optimizer_ms = 0;  ///< Copies out of the buckets included.
  double step_ms = 0;
};

/// One rank in one step of the run without noise.
struct RankStepResult : RankTimes {
  int step = 0;
  int rank = 0;
  std::int64_t samples = 0;
  std::int64_t max_length = 0;
  std::int64_t useful_tokens = 0;
  std::int64_t padded_tokens = 0;
  double start_ms = 0;
  double peak_memory_mib = 0;
};

/// One rank's means over the steady steps.
struct RankMeans : RankTimes {
  double useful_tokens = 0;
  double padded_tokens = 0;
};

/// The step time, in milliseconds: a step lasts from when the last rank starts it to when the last
/// rank ends it. The mean over the steady steps is the pace of the run, whatever the ranks do among
/// themselves. It is the only step time that throughput, efficiency, gains and rankings are made
/// from.
struct StepTimeSummary {
  double mean = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
  double low90 = 0;  ///< 90 % interval of the mean, at any hour of the machine.
  double high90 = 0;
  /// This interval leaves the machine's drift out: it holds for runs beside the recording of the
  /// costs, when the machine was as fast.
  double same_hour_low90 = 0;
  double same_hour_high90 = 0;

  /// How wide the 90 % interval is, at any hour.
  [[nodiscard]] double width90() const { return high90 - low90; }
  /// The interval in the hour of the calibration is known, and much the narrower one.
  [[nodiscard]] bool drifts() const {
    constexpr double kMuch = 0.8;
    return same_hour_high90 > 0 && same_hour_high90 - same_hour_low90 < kMuch * (high90 - low90);
  }
};

/// The figures of one policy: means over the steady steps and, where noise was drawn, over the runs
/// with noise. All times are of the same simulated steps, so that the parts add up to the step.
struct PredictionSummary {
  StepTimeSummary step_time_ms;
  double samples_per_step = 0;  ///< Sum over all ranks, as are the tokens.
  double useful_tokens_per_step = 0;
  /// Useful tokens of the policy's first epoch over its samples, cut ones counted once; 0: the
  /// epoch is not known.
  double tokens_per_sample = 0;
  double padded_tokens_per_step = 0;
  double rank_token_spread = 0;  ///< Mean over steps of max - min over ranks of useful tokens.
  double step_time_std_over_ranks = 0;  ///< Mean over steps, population.
  double padded_tokens_std_over_ranks = 0;
  double peak_memory_std_over_ranks = 0;
  double data_ms = 0;  ///< This and the other parts: mean over the ranks.
  double forward_ms = 0;
  double backward_ms = 0;
  double optimizer_ms = 0;
  double exposed_communication_ms = 0;  ///< Idle after the backward, slower ranks included.
  double waiting_for_ranks_ms = 0;      ///< Of that: until the last rank arrives.
  double communication_ms = 0;          ///< Sum of the collectives of a step.
  /// The share of `communication_ms` that hides: what is over before the last backward ends. Where
  /// ranks wait for collectives within their passes: what is not exposed on the rank that waits
  /// least.
  double overlap_fraction = 0;
  double peak_memory_mib = 0;

  [[nodiscard]] double useful_tokens_per_s() const { return per_second(useful_tokens_per_step); }
  [[nodiscard]] double padded_tokens_per_s() const { return per_second(padded_tokens_per_step); }
  /// The samples whose tokens a mean step takes. Those that the simulated steps happen to hold can
  /// be longer or shorter than the epoch's.
  [[nodiscard]] double mean_samples_per_step() const {
    return tokens_per_sample > 0 ? useful_tokens_per_step / tokens_per_sample : samples_per_step;
  }
  [[nodiscard]] double samples_per_s() const { return per_second(mean_samples_per_step()); }
  /// 1 - useful / padded tokens.
  [[nodiscard]] double padding_ratio() const {
    return padded_tokens_per_step > 0 ? 1 - useful_tokens_per_step / padded_tokens_per_step : 0;
  }
  /// What a rank does without waiting for others, over the step time.
  [[nodiscard]] double scaling_efficiency() const {
    const double alone = data_ms + forward_ms + backward_ms + optimizer_ms;
    return step_time_ms.mean > 0 ? alone / step_time_ms.mean : 0;
  }
  /// Idle after the backward while the collectives themselves run.
  [[nodiscard]] double exposed_transfer_ms() const {
    return exposed_communication_ms - waiting_for_ranks_ms;
  }
  /// Turns a quantity of one step into a rate, at the mean step time.
  [[nodiscard]] double per_second(double per_step) const {
    return step_time_ms.mean > 0 ? per_step * 1e3 / step_time_ms.mean : 0;
  }
};

/// The interval of the mean step that holds so many per cent of the draws, in milliseconds; see
/// StepTimeSummary for the two of 90 %.
struct MeanInterval {
  int percent = 90;
  double low = 0;
  double high = 0;
  double same_hour_low = 0;
  double same_hour_high = 0;
};

/// One run under the profile's errors and noise; the 90 % interval of the mean is of such runs.
struct MeanDraw {
  double step_ms = 0;  ///< Mean step, see StepTimeSummary.
  double drift = 1;    ///< The drawn factor on all costs that is in it: the machine's own speed.
};

struct Prediction {
  std::string scenario;
  std::string policy;
  std::string profile;
  std::string profile_id;  ///< See ProfileId.
  /// The costs are those of single ops, and no recorded or timed steps of a training confirm them:
  /// how likely something is holds by the profile's own errors.
  bool unconfirmed = false;
  PredictionSummary summary;
  std::vector<RankMeans> ranks;         ///< [rank] over the steps of the summary.
  std::vector<RankStepResult> steps;    ///< Without noise, by step then rank; where they are kept.
  std::vector<MeanDraw> draws;          ///< None without noise runs.
  std::vector<MeanInterval> intervals;  ///< Of 50, 80, 90 and 95 %; none without noise runs.
  /// [draw] Mean step under the profile's errors and jitter, without drift; when asked for. The
  /// same draw of two predictions has the same errors, so that their ratio is a paired one.
  std::vector<double> paired_step_ms;
  std::vector<StepTimeline> timelines;      ///< [step] or of one step, when asked for.
  std::vector<std::string> op_labels;       ///< Names for the timelines' spans, when asked for.
  std::optional<TrainingEffects> training;  ///< Sums over one epoch, when asked for.
  std::optional<VarlenUse> varlen;          ///< Sums over one epoch, with varlen attention.
  std::optional<ShapeSummary> shapes;       ///< Where new shapes cost something.
  std::vector<CollectiveOrigin> collective_origins;
  std::vector<Note> notes;
  std::optional<OutOfMemory> out_of_memory;  ///< The step and rank that need most; empty: all fit.
  double largest_memory_mib = 0;  ///< Peak of the simulated steps and the whole first epoch.
  std::optional<MemoryCurve> memory_curve;  ///< When asked for, and the parallelism has one.
  std::optional<TokenBudget> token_budget;  ///< With a profile that knows the device's memory.
};

}  // namespace stepsim
