#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/batching/training_effects.h"
#include "sim/batching/varlen_epoch.h"
#include "sim/ddp/step.h"

namespace stepsim {

/// One rank in one step of a predicted run.
struct RankStepResult {
  int step = 0;
  int rank = 0;
  std::int64_t samples = 0;
  std::int64_t max_length = 0;
  std::int64_t useful_tokens = 0;
  std::int64_t padded_tokens = 0;
  double start_ms = 0;
  double data_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double exposed_ms = 0;
  double optimizer_ms = 0;  ///< Copy-outs included.
  double step_ms = 0;
  double peak_memory_mib = 0;
};

/// Milliseconds of a step: from when the last rank starts it to when the last rank ends it. The
/// mean over steps is the pace of the run, whatever the ranks do among themselves.
struct StepTimeSummary {
  double mean = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
  double low90 = 0;  ///< 90 % interval of the mean.
  double high90 = 0;
};

/// The figures of one policy, over the steady steps. Milliseconds, tokens per second.
struct PredictionSummary {
  StepTimeSummary step_time_ms;
  double slowest_rank_step_ms = 0;  ///< Largest over ranks of the rank's mean step time.
  double useful_tokens_per_s = 0;
  double padded_tokens_per_s = 0;
  double samples_per_s = 0;
  double useful_tokens_per_step = 0;  ///< All ranks.
  double padded_tokens_per_step = 0;
  double padding_ratio = 0;      ///< 1 - mean useful / mean padded.
  double rank_token_spread = 0;  ///< Mean over steps of max - min over ranks of useful tokens.
  double step_time_std_over_ranks = 0;  ///< Mean over steps, population.
  double padded_tokens_std_over_ranks = 0;
  double peak_memory_std_over_ranks = 0;
  double data_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double optimizer_ms = 0;
  double communication_ms = 0;          ///< Sum of the all-reduces of a step.
  double exposed_communication_ms = 0;  ///< Idle after backward, slower ranks included.
  double overlap_fraction = 0;          ///< Share of all-reduce time before the last backward ends.
  double scaling_efficiency = 0;        ///< Mean compute of a rank alone / step time.
  double peak_memory_mib = 0;
};

/// What the memory of one device allows.
struct TokenBudget {
  std::int64_t tokens = 0;  ///< Most padded tokens of a micro-batch; 0: not even one sample fits.
  std::int64_t length = 0;  ///< Of the samples: the longest batch of the plan.
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
  PredictionSummary summary;
  std::vector<RankStepResult> steps;            ///< Without noise, by step then rank.
  std::vector<MeanDraw> draws;                  ///< None without noise runs.
  std::vector<StepTimeline> timelines;          ///< [step] or of one step, when asked for.
  std::vector<std::string> op_labels;           ///< Of the timelines' spans, when asked for.
  std::optional<TrainingEffects> training;      ///< Of one epoch, when asked for.
  std::optional<VarlenUse> varlen;              ///< Likewise, with varlen attention.
  double planning_seconds = 0;                  ///< Likewise: what planning it took here.
  std::vector<std::string> collective_sources;  ///< "all_reduce: measured table, 8 ranks", …
  std::vector<std::string> warnings;
  std::string out_of_memory;                ///< Empty, or which step and rank would not fit.
  std::optional<TokenBudget> token_budget;  ///< With a profile that knows the device's memory.
};

}  // namespace stepsim
