#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "costmodel/records/profile.h"
#include "sim/batching/sort_window.h"
#include "sim/predict/counterfactual.h"
#include "sim/predict/note.h"
#include "sim/predict/run/job.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// "free_communication", "balanced", …
[[nodiscard]] std::string name_of(Change change);

/// What a change would save: the mean step of the scenario less that of the counterfactual run.
struct Saving {
  Change change = Change::Balanced;
  int rank = -1;       ///< MedianRank: which one.
  double step_ms = 0;  ///< With the change.
  double saves_ms = 0;
  std::string not_priced;  ///< Empty, or why the profile cannot price the change.
};

/// A collective of the steady steps, by its number within the step.
struct BucketBlame {
  std::string collective;  ///< "all_reduce", …
  /// Mean transfer time after the end of the last rank's backward, and after the collectives before
  /// this one. Their sum is what overlap did not hide, without the wait for slower ranks.
  double exposed_ms = 0;
};

/// Ops of one class and pass: "gemm forward".
struct OpBlame {
  std::string ops;
  double ms = 0;  ///< A step, mean over the ranks.
};

/// How far the ranks of a step differ, and why they do where the policy's parameters tell.
struct Imbalance {
  /// The padded tokens of the rank that has most, over the mean of the ranks; mean over the steps.
  double heaviest_over_mean = 1;
  /// The forward and backward of the heaviest rank's batches over the mean of the ranks, without
  /// cluster.skew and slow ranks; mean over the steps.
  double work_over_mean = 1;
  double skew_over_mean = 1;  ///< What cluster.skew makes of equal work.
  bool is_skew = false;       ///< The skew makes the ranks differ more than their batches do.
  double samples_per_step = 0;
  /// The policy's window, where one step takes so much of it that its ranks get samples of quite
  /// different lengths.
  std::optional<SortWindow> window;
};

/// What one policy's steps are made of: means over the steady steps, without noise but for the
/// first.
struct Blame {
  std::string scenario;
  std::string policy;
  std::string profile;
  double mean_step_ms = 0;      ///< The mean step with noise, as predictions give it.
  double step_ms = 0;           ///< The mean step without noise; see StepTimeSummary.
  std::vector<Saving> savings;  ///< Largest first. They overlap, so they do not add up.
  std::vector<double> last;     ///< [rank] share of the steps in which its backward ended last;
                                ///< ranks that end together share a step.
  std::vector<BucketBlame> buckets;
  Imbalance imbalance;
  std::vector<OpBlame> ops;  ///< Forward and backward, largest first.
  std::vector<Note> notes;   ///< Of the prediction without changes.
  bool out_of_memory = false;
};

/// A step that takes more than one part in so many of a policy's window has ranks that differ.
inline constexpr double kStepsPerWindow = 8;

/// Most ranks whose median load is tried; of more, those that were last most often.
inline constexpr int kMaxBlamedRanks = 64;

/// Runs the counterfactuals of one policy, each as long as a prediction without noise.
/// `most_ranks`: whose median load is tried. Raises InputError: a cost that the profile lacks.
[[nodiscard]] Blame blame(const Job& job,
                          int most_ranks = kMaxBlamedRanks,
                          const ProgressCallback& on_progress = {});

/// The steps' largest exposed collective; nothing when all is hidden.
[[nodiscard]] std::optional<std::size_t> most_exposed(const Blame& blame);

}  // namespace stepsim
