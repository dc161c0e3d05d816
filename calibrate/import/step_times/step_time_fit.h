#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/fit/posterior.h"
#include "calibrate/import/step_times/step_time_job.h"

namespace stepsim {

/// How a step's time is explained.
enum class StepTimeForm {
  Plain,         ///< Compute goes on at full speed while gradients are reduced.
  Interference,  ///< A collective slows the compute that it overlaps.
  NoOverlap      ///< Compute stands still while gradients are reduced, or they are after it.
};

/// What the rows of a table may leave open.
enum class StepTimeDoubt {
  Overlap,     ///< Whether the backward hides communication at all.
  NodeGrowth,  ///< Whether compute grows with the ranks of a node, or its links are slow.
  TwoNodes,    ///< Whether a ring over two nodes is slower than one over more.
  HostTime,    ///< Whether steps of small batches are flat for the host, or the links are slow.
  JobGrowth    ///< Whether steps grow with the job's ranks, or the links between nodes are slow.
};

/// A coefficient that is no smaller, or the rows would have been longer.
struct StepTimeBound {
  std::size_t place = 0;
  double least = 0;
};

/// Another fit of the same rows, which they do not rule out.
struct StepTimeAlternative {
  StepTimeDoubt doubt = StepTimeDoubt::Overlap;
  Posterior posterior;
  std::vector<StepTimeBound> bounds = {};
};

/// A job's coefficients as fitted to its step times, with what else the times allow.
struct StepTimeFit {
  StepTimeJob job;  ///< Compute that no rank was timed with is the fitted one.
  StepTimeForm form = StepTimeForm::Plain;
  /// Mean |error| of step times with each placement held out in turn: [form]; absent where fewer
  /// than three placements have several ranks.
  std::vector<double> held_out;
  Posterior posterior;
  std::vector<StepTimeBound> bounds;  ///< Where the posterior would reach beyond what rows allow.
  /// What else the rows allow. Intervals and draws are of all fits together.
  std::vector<StepTimeAlternative> alternatives;
  /// Twice the negative logarithm of the posterior's density at its mode, but for a constant.
  double cost = 0;
  std::vector<double> priors;  ///< [coefficient] How sure they were before any row was seen, there.
  /// Standard deviations, as fractions: of compute from run to run, and of all collectives of a
  /// run together. They are the table's where it has many rows, else what published tables have.
  double compute_noise = 0;
  double run_noise = 0;
  bool links_are_known = false;  ///< Of another job on the same cluster.
  int ranks = 1;                 ///< The most ranks and nodes in the table.
  int nodes = 1;
};

[[nodiscard]] bool leaves_open(const StepTimeFit& fit, StepTimeDoubt doubt);

/// How far the table itself tells each coefficient: the standard deviation, while the priors of all
/// others are ten times as wide, over that before any row was seen. Two nodes alone do not tell the
/// bandwidth between three: a prior of their ratio does.
[[nodiscard]] std::vector<double> told_of_prior(const StepTimeFit& fit);

/// Fits a job to its table of step times.
///
/// Coefficients are logarithms where they are positive, and all have priors (see the source); those
/// of the links are `known` where another job of the same cluster was fitted before. Residuals are
/// of the logarithms of steps, and, where the table has them, of steps without their exposed
/// communication; in units of the noise, those of one placement counting as half of one run. Slow
/// outliers count with the square root of their excess. The form is Interference where that has a
/// held-out error at least 5 % less, unless one is `stated`. Where fewer than three placements have
/// several ranks, nothing tells Plain from NoOverlap: the fit is Plain, and the other stands beside
/// it.
///
/// Raises InputError: a single row; only one rank was timed and no links are known; links that are
/// slower than 12 MB/s or faster than 2 TB/s, as times in the wrong unit make them.
[[nodiscard]] StepTimeFit fit_step_times(const StepTimeTable& table,
                                         const StepTimeJob& job,
                                         const std::optional<FittedLinks>& known = std::nullopt,
                                         std::optional<StepTimeForm> stated = std::nullopt);

/// The coefficients that a vector stands for; `compute` is the place in StepTimeJob::compute.
[[nodiscard]] StepTimeCoefficients coefficients_of(const StepTimeFit& fit,
                                                   std::span<const double> vector);
[[nodiscard]] double compute_of(const StepTimeFit& fit,
                                std::span<const double> vector,
                                std::size_t compute);

/// [StepTimeJob::below] What they take by these coefficients.
[[nodiscard]] std::vector<double> compute_below(const StepTimeFit& fit,
                                                std::span<const double> vector);

/// The part of a run's variance that all its rows have in common; they differ by the rest.
inline constexpr double kCommonToRun = 0.5;

/// A 90 % interval reaches so many standard deviations to either side.
inline constexpr double kDeviationsOf90 = 1.645;

/// A predicted step with the standard deviation of its logarithm, noise of a single run included.
struct StepTimePrediction {
  StepTimeParts parts;
  double deviation = 0;
  std::vector<double> gradient;  ///< [coefficient] derivative of the step's logarithm.
};

/// Predicts the step of a batch on a placement, with ranks whose work differs by `spread`. With
/// `deviation` d, the 90 % interval is from step / exp(1.645 d) to step * exp(1.645 d).
[[nodiscard]] StepTimePrediction predict_step_time(const StepTimeFit& fit,
                                                   std::size_t compute,
                                                   const Placement& placement,
                                                   double spread = 0,
                                                   std::int64_t micro_batches = 1);

}  // namespace stepsim
