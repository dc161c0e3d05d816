#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/recorded/recorded_exposure.h"
#include "calibrate/import/recorded/recorded_reduces.h"
#include "calibrate/samples/samples.h"
#include "costmodel/compute/pass_cost.h"
#include "costmodel/compute/shape_cost.h"
#include "costmodel/records/plan_file.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// Recorded steps, and the plan that they ran.
struct RecordedRun {
  RunRecord record;
  Plan plan;
  std::string file;  ///< The record's, for messages.
};

/// What a profile takes from recorded runs.
struct RecordedCosts {
  RecordedModel model;
  NoiseProfile noise;
  std::vector<RecordedReduce> reduces;        ///< All-reduces of recorded buckets; may be empty.
  std::vector<CollectiveSample> all_reduces;  ///< `reduces`, combined by size.
  std::vector<RecordedExposure> exposures;    ///< [step] Where no buckets were recorded.
  std::vector<ShapeCost> new_shapes;          ///< What a first meeting of a shape costs.
  int ranks = 1;
  bool on_gpu = false;
  bool sharded = false;  ///< Recorded under fully_shard: there are no buckets.
  double cores = 0;      ///< Cores that the ranks shared, as a rate; 0 = each rank had its own.
  /// [rank] Its compute over that of the model, where ranks are steadily unequal; empty: alike.
  std::vector<double> rank_factors;
  /// Present when the backward could not be told from waiting: forward and backward together, with
  /// the all-reduces inside. The model's passes are then shares of it.
  std::optional<PassCost> whole;
  int steps = 0;                      ///< The steady steps that were fitted.
  std::vector<std::string> notes;     ///< How the backward was told from waiting, and the like.
  std::vector<std::string> warnings;  ///< What the fit should not be used for.
};

/// What is fitted: passes and all-reduces where the records tell them apart, or whole steps.
enum class RecordedForm { Passes, WholeSteps };

/// Fits a model's forward, backward, data and optimizer times to the steady steps of runs on the
/// same machine and number of ranks.
///
/// The wall time of a backward includes the wait for other ranks' gradients. What tells the two
/// apart is, in this order: the bucket launches where they were recorded; the thread's processor
/// time, scaled by the wall time over processor time of the forward, or of backwards with recorded
/// buckets; the recorded wait. With one rank there is no wait. When no run has any of these, or
/// with RecordedForm::WholeSteps, whole steps are fitted (fit_whole_steps()); the spread of single
/// steps then goes into the drift and not into quantiles, since it is that of the slowest rank.
/// Runs without buckets are preferred for the passes, since recording buckets costs time.
/// add_reduces() takes the all-reduces.
///
/// When there were fewer cores than ranks, the costs are those of a rank with a core of its own:
/// its processor times, scaled so that sharing the cores (shared_core_factors()) gives the wall
/// times.
///
/// Where the first meeting of a shape costs something (fit_recorded_shapes()), steps with one are
/// left out of all other fits.
///
/// Raises InputError: runs of different models, ranks or devices; a record that ran other batches
/// than its plan; a step whose backward cannot be told from waiting although others' can; too few
/// steps.
[[nodiscard]] RecordedCosts fit_recorded_runs(std::span<const RecordedRun> recorded,
                                              RecordedForm form = RecordedForm::Passes);

/// Makes a profile of those costs alone, or of `base` with them in place of its own.
///
/// All-reduces of `base` between as many ranks stay, since a sweep of sizes tells more than a run's
/// buckets. fit_training_reduces() scales them to the recorded ones and says how much compute slows
/// them, which replaces the interference of `base`. Where no buckets were recorded, they are scaled
/// so that the recorded batches leave as much exposed as the record has (scale_to_exposure()), and
/// without a `base` they are taken to be proportional to their bytes. After a fit to whole steps,
/// which include the all-reduces, those between as many ranks take no time.
[[nodiscard]] Profile recorded_profile(const RecordedCosts& costs,
                                       std::span<const RecordedRun> runs,
                                       const Profile* base);

/// Says in a text what was fitted and how well.
[[nodiscard]] std::string recorded_report(const RecordedCosts& costs);

}  // namespace stepsim
