#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "costmodel/base/quantile.h"
#include "sim/predict/prediction.h"

namespace stepsim {

[[nodiscard]] double mean(std::span<const double> values);
/// Population standard deviation (ddof = 0).
[[nodiscard]] double population_std(std::span<const double> values);

/// Step times from rows of ranks: from the last rank's start to the last rank's end.
class GlobalSteps {
 public:
  void add(int repeat, int step, double start_ms, double step_ms);
  /// [repeat][step] milliseconds.
  [[nodiscard]] std::map<int, std::map<int, double>> by_repeat() const;
  /// By repeat, then step.
  [[nodiscard]] std::vector<double> all_ms() const;

 private:
  struct Ends {
    double start = 0;
    double end = 0;
  };
  std::map<std::pair<int, int>, Ends> ends_;
};

/// Fills the token, throughput, spread and part figures from the rows of the steady steps.
/// Formulas: the token-skew lab's metrics (ratio of means for padding; useful tokens over the
/// slowest rank's mean step time for throughput).
void summarise(std::span<const RankStepResult> rows,
               int ranks,
               int warmup_steps,
               PredictionSummary& summary);

}  // namespace stepsim
