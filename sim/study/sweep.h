#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "sim/predict/prediction.h"
#include "sim/predict/step_picture.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// One scenario key and the values it takes.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;  ///< As `--set key=value` takes them.
  std::vector<std::string> labels;  ///< As tables show them.
};

/// "ddp.bucket_cap=1MiB..2GiB:x2" (geometric), "cluster.ranks=2..8:+2" (arithmetic) or
/// "policy.budget.max_tokens=1024,1280,2048" (a list).
///
/// Raises InputError: no '=', an empty or endless range, more than 10,000 values, a wrong unit.
[[nodiscard]] SweepAxis parse_sweep_axis(const std::string& text);

/// One point of a sweep.
struct SweepPoint {
  std::vector<std::string> labels;  ///< [axis]
  Prediction prediction;
  std::size_t buckets = 0;
  double last_bucket_ms = 0;  ///< All-reduce time of the last bucket, which nothing can hide.
  std::optional<StepPicture> picture;  ///< When asked for.
  std::string not_priced;              ///< Empty, or why the profile cannot price the point.
};

struct SweepOptions {
  std::string policy;  ///< Empty: the first of the scenario.
  std::vector<std::string> overrides;
  int threads = 0;                     ///< 0: one a core.
  std::optional<int> picture_of_step;  ///< Of each point; the last step where there are fewer.
  bool skips_unpriced = false;  ///< Else a point that cannot be priced is the sweep's InputError.
  ProgressCallback on_progress = {};  ///< Called from the caller's thread only.
};

/// Predicts every combination of the axes' values (the last axis runs fastest), by the closed form.
/// Overrides and values are applied to the scenario's text.
[[nodiscard]] std::vector<SweepPoint> sweep(const Scenario& scenario,
                                            const std::vector<SweepAxis>& axes,
                                            const SweepOptions& options);

}  // namespace stepsim
