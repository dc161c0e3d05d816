#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "sim/points/point_runner.h"
#include "sim/predict/prediction.h"
#include "sim/predict/run/jobs.h"
#include "sim/predict/step_picture.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// One scenario key and the values that a sweep gives it.
struct SweepAxis {
  std::string key;
  std::vector<Setting> values;
};

/// Parses "ddp.bucket_cap=1MiB..2GiB:x2" (geometric), "cluster.ranks=2..8:+2" (arithmetic),
/// "times.forward=12ms..24ms:+6ms" or "policy.budget.max_tokens=1024,1280,2048" (a list, whose
/// values may be lists and tables themselves: "cluster.slow_ranks=[],[{rank=1,factor=1.5}]").
///
/// Raises InputError: '=' is missing, the range is empty or endless, there are more than 10,000
/// values, or a unit is wrong.
[[nodiscard]] SweepAxis parse_sweep_axis(const std::string& text);

/// The policy that a study of these keys predicts: the one named, else the one whose key is among
/// them, else the scenario's first. `option` is where the keys stand, as "--over".
/// Raises InputError: a key belongs to a policy that is not predicted.
[[nodiscard]] std::string studied_policy(const Scenario& scenario,
                                         const std::string& option,
                                         const std::vector<std::string>& keys,
                                         const std::string& named);

/// One point of a sweep.
struct SweepPoint {
  std::vector<std::size_t> place;  ///< [axis] Which of its values; empty: on none of the axes.
  Prediction prediction;
  int ranks = 1;
  std::size_t buckets = 0;
  double last_bucket_ms = 0;  ///< All-reduce time of the last bucket, which nothing can hide.
  std::optional<StepPicture> picture;  ///< Present when SweepOptions::picture_of_step is.
  std::string not_priced;              ///< Why the point cannot be predicted; else empty.
  std::string op_source;  ///< Where the costs of ops come from: "measured", "published", …
  std::string collective_source;  ///< "measured", "interpolated", "extrapolated", "links", …
};

struct SweepOptions {
  std::string policy;                       ///< Empty: the scenario's first policy.
  std::vector<Setting> settings = {};       ///< Below those of the axes.
  int threads = 0;                          ///< 0: one thread per core.
  std::optional<int> picture_of_step = {};  ///< Draw this step of each point, or the last it has.
  int noise_runs = 0;                       ///< PredictOptions::noise_runs; the draws are paired.
  bool skips_unpriced = false;        ///< False: a point that cannot be priced ends the sweep.
  ProgressCallback on_progress = {};  ///< Called from the caller's thread only.
  /// Why there is no scenario without the axes' values, so that there is no reference; else empty.
  std::string no_reference = {};
};

/// Predicts every combination of the axes' values; the last axis varies fastest.
/// Raises InputError: an axis is one cap and the scenario lists several; a point cannot be priced
/// and SweepOptions::skips_unpriced is false.
[[nodiscard]] std::vector<SweepPoint> sweep(Jobs& jobs,
                                            const std::vector<SweepAxis>& axes,
                                            const SweepOptions& options);
[[nodiscard]] std::vector<SweepPoint> sweep(const Scenario& scenario,
                                            const std::vector<SweepAxis>& axes,
                                            const SweepOptions& options);

/// Raises InputError where none of the points could be predicted: it says why, of each point where
/// reasons differ.
[[noreturn]] void fail_all_refused(Jobs& jobs,
                                   std::vector<SweepAxis> axes,
                                   SweepOptions options,
                                   const std::vector<SweepPoint>& points);

/// A sweep with one more point: the scenario without the axes' values.
struct ReferencedSweep {
  std::vector<SweepPoint> points;
  SweepPoint reference;
};

/// Predicts the same with a runner, in place of options.threads, and the reference beside. Raises
/// what sweep() and PointRunner::evaluate() do.
[[nodiscard]] ReferencedSweep sweep_with_reference(Jobs& jobs,
                                                   const std::vector<SweepAxis>& axes,
                                                   const SweepOptions& options,
                                                   PointRunner& runner);

/// Predicts the part of these points that is in the runner's shard, and keeps them in its store.
/// Returns how many there are.
std::size_t keep_sweep(Jobs& jobs,
                       const std::vector<SweepAxis>& axes,
                       const SweepOptions& options,
                       PointRunner& runner);

}  // namespace stepsim
