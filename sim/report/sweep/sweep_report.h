#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/report/sweep/sweep_columns.h"
#include "sim/scenario/scenario.h"
#include "sim/study/sweep.h"
#include "sim/study/training/published_scaling.h"
#include "sim/study/training/training_cost.h"

namespace stepsim {

/// What the largest cluster keeps of the samples a second and rank of the smallest one, and what
/// published jobs keep.
struct ScalingComparison {
  GrownJob job;
  double efficiency = 0;
  double low90 = 0;
  double high90 = 0;
  std::vector<PublishedScaling> published;  ///< Empty: nothing is compared.
};

/// A sweep and what it shows: the best point, and the scenario as it stands beside it.
struct SweepReport {
  std::vector<SweepRow> rows;
  /// Largest useful tokens per second (for bucket caps: shortest step); where no point fits into
  /// memory, the one that lacks least.
  std::size_t best = 0;
  SweepPoint reference;        ///< The scenario as it stands; it may be refused.
  std::string reference_name;  ///< Where bucket_cap is swept, its own.
  std::optional<Bytes> reference_cap;
  Bytes memory_capacity;  ///< Of a rank; 0: unknown.
  Gain gain;              ///< Of the best over the reference.
  std::vector<std::string> keys_without_effect;
  /// Where no point fits into memory: the other policies that do as the scenario stands.
  std::vector<std::string> fitting_policies;
  bool counts_samples = false;  ///< The scenario has no lengths: each of its tokens is a sample.
  TrainingGoal goal;
  /// [row] What training costs; empty unless the rows differ in ranks or the goal says something.
  std::vector<TrainingCost> training;
  ScalingComparison scaling;
};

/// Predicts all points with the runner; a point that is refused is a row that says why. Raises what
/// sweep_with_reference() does, and InputError where all points are refused.
[[nodiscard]] SweepReport sweep_report(Jobs& jobs,
                                       const std::vector<SweepAxis>& axes,
                                       const SweepOptions& options,
                                       PointRunner& runner,
                                       const TrainingGoal& goal = {});

/// Whether any point fits into memory.
[[nodiscard]] bool any_fits(const SweepReport& report);

/// Whether to change anything, in a sentence or two: the best point and what the reference costs
/// more; or that nothing can be told from the reference, which is then to be kept.
[[nodiscard]] std::string sweep_headline(const std::vector<SweepAxis>& axes,
                                         const SweepReport& report);
/// True: bucket caps are the only key swept.
[[nodiscard]] bool sweeps_only_caps(const std::vector<SweepAxis>& axes);
[[nodiscard]] std::string sweep_text(const Scenario& scenario,
                                     const std::vector<SweepAxis>& axes,
                                     const SweepReport& report,
                                     const Screen& screen = {});
[[nodiscard]] Json sweep_json(const std::vector<SweepAxis>& axes, const SweepReport& report);
[[nodiscard]] std::string sweep_csv(const std::vector<SweepAxis>& axes, const SweepReport& report);

}  // namespace stepsim
