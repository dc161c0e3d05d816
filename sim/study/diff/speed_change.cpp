#include "sim/study/diff/speed_change.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "costmodel/base/mapped.h"
#include "costmodel/records/run_record.h"

namespace stepsim {
namespace {

/// Useful tokens of all ranks.
double useful_tokens(const ComparedStep& step) {
  return sum_of(step.ranks,
                [](const StepRecord* row) { return static_cast<double>(row->useful_tokens); });
}

/// The tokens and the time of a side.
struct SideSums {
  double tokens = 0;
  double ms = 0;
  double steps = 0;

  [[nodiscard]] double per_ms() const { return tokens / ms; }
};

}  // namespace

std::pair<double, double> SpeedChange::interval(double alarm) const {
  const auto [low, high] = log_ratio.interval(alarm);
  return {std::expm1(low), std::expm1(high)};
}

std::optional<SpeedChange> speed_change(const ComparedSteps& compared) {
  std::array<SideSums, 2> sides;
  for (const ComparedStep& step : compared.all) {
    SideSums& side = sides[step.after ? 1 : 0];
    side.tokens += useful_tokens(step);
    side.ms += step.step_ms;
    ++side.steps;
  }
  const auto& [before, after] = sides;
  if (!(before.tokens > 0) || !(after.tokens > 0)) {
    return std::nullopt;
  }
  std::vector<DiffMark> marks;
  std::vector<double> shares;
  for (const ComparedStep& step : compared.all) {
    const SideSums& side = sides[step.after ? 1 : 0];
    const double beyond = useful_tokens(step) - side.per_ms() * step.step_ms;
    marks.push_back({step.after, step.run, step.start_ms, 0, {}});
    shares.push_back(1 + beyond / (side.tokens / side.steps));
  }
  const std::optional<Effect> effect =
      StepComparison(std::move(marks), compared.by_turns).effect(shares);
  if (!effect) {
    return std::nullopt;
  }
  constexpr double kMsPerSecond = 1e3;
  SpeedChange change{kMsPerSecond * before.per_ms(), kMsPerSecond * after.per_ms(), *effect};
  change.log_ratio.before = 1;
  change.log_ratio.change = std::log(change.after / change.before);
  return change;
}

}  // namespace stepsim
