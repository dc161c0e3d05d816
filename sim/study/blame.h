#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "costmodel/records/profile.h"
#include "sim/predict/counterfactual.h"
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
  double ms = 0;  ///< A step, mean over the ranks, as if all were of ordinary speed.
};

/// What one policy's steps are made of. Without noise, means over the steady steps.
struct Blame {
  std::string scenario;
  std::string policy;
  std::string profile;
  double step_ms = 0;           ///< The mean step; see StepTimeSummary.
  std::vector<Saving> savings;  ///< Largest first. They overlap, so they do not add up.
  std::vector<double> last;     ///< [rank] share of the steps in which its backward ended last;
                                ///< ranks that end together share a step.
  std::vector<BucketBlame> buckets;
  std::vector<OpBlame> ops;  ///< Forward and backward, largest first.
};

/// Most ranks whose median load is tried; of more, those that were last most often.
inline constexpr int kMaxBlamedRanks = 64;

/// Runs the counterfactuals of one policy, each as long as a prediction without noise.
/// `most_ranks`: whose median load is tried. Raises InputError: a cost that the profile lacks.
[[nodiscard]] Blame blame(const Scenario& scenario,
                          const BatchingPolicy& policy,
                          const Profile& profile,
                          int most_ranks = kMaxBlamedRanks,
                          const ProgressCallback& on_progress = {});

/// The steps' largest exposed collective; nothing when all is hidden.
[[nodiscard]] std::optional<std::size_t> most_exposed(const Blame& blame);

}  // namespace stepsim
