#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/recorded/recorded_reduces.h"
#include "calibrate/samples/samples.h"
#include "costmodel/compute/pass_cost.h"
#include "costmodel/records/plan_file.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// Steps that were recorded, and what they ran.
struct RecordedRun {
  RunRecord record;
  Plan plan;
  std::string file;  ///< Of the record, for messages.
};

/// What a profile takes from recorded runs.
struct RecordedCosts {
  RecordedModel model;
  NoiseProfile noise;
  std::vector<RecordedReduce> reduces;        ///< Of buckets that were recorded; may be empty.
  std::vector<CollectiveSample> all_reduces;  ///< The same by size.
  int ranks = 1;
  bool on_gpu = false;
  int cores = 0;  ///< That the ranks shared; 0: each had its own.
  /// Set where the backward could not be told from waiting: forward and backward together, with
  /// the all-reduces inside. The model's passes are shares of it.
  std::optional<PassCost> whole;
  int steps = 0;                      ///< Steady steps that were fitted.
  std::vector<std::string> notes;     ///< How the backward was told from waiting, and the like.
  std::vector<std::string> warnings;  ///< What the fit should not be used for.
};

/// Fits a model's forward, backward, data and optimizer times to the steady steps of runs on the
/// same machine and number of ranks.
///
/// A backward's wall time holds the wait for other ranks' gradients. It is told from that by the
/// bucket launches where they were recorded, else by the thread's processor time (scaled by wall
/// over processor time of the forward, or of backwards with recorded buckets), else by the recorded
/// wait, else there is one rank only. Where no run has any of these, whole steps are fitted
/// (fit_whole_steps()): the spread of single steps is then in the drift and not in quantiles, since
/// it holds the slowest of the ranks. Runs without buckets are preferred for the passes, since
/// recording buckets costs time. All-reduces: see
/// add_reduces().
///
/// Where there were fewer cores than ranks, costs are those of a rank with a core of its own: its
/// processor times, scaled so that sharing the cores (shared_core_factors()) makes the wall times.
///
/// Raises InputError: runs of different models, ranks or devices; a record that ran other batches
/// than its plan; a step whose backward cannot be told from waiting where that of others can; too
/// few steps.
[[nodiscard]] RecordedCosts fit_recorded_runs(std::span<const RecordedRun> runs);

/// A profile of those costs: `base` with them in place of its own, or one of them alone.
/// All-reduces of `base` between as many ranks stay, since a sweep of sizes tells more than a run's
/// buckets; fit_training_reduces() of the recorded ones scales them and says how much compute slows
/// them, in place of the interference of `base`; after a fit to whole steps, which hold them, those
/// between as many ranks take no time.
[[nodiscard]] Profile recorded_profile(const RecordedCosts& costs,
                                       std::span<const RecordedRun> runs,
                                       const Profile* base);

/// What was fitted and how well, as text.
[[nodiscard]] std::string recorded_report(const RecordedCosts& costs);

}  // namespace stepsim
