#include "sim/study/swept_effect.h"

#include <tuple>

namespace stepsim {
namespace {

bool comes_to_the_same(const SweepPoint& a, const SweepPoint& b) {
  if (a.not_priced.empty() != b.not_priced.empty()) {
    return false;
  }
  const auto figures = [](const SweepPoint& point) {
    const PredictionSummary& s = point.prediction.summary;
    return std::tuple(s.step_time_ms.mean,
                      s.step_time_ms.p99,
                      s.step_time_ms.low90,
                      s.step_time_ms.high90,
                      s.samples_per_step,
                      s.useful_tokens_per_step,
                      s.padded_tokens_per_step,
                      s.peak_memory_mib,
                      s.communication_ms,
                      point.ranks);
  };
  return figures(a) == figures(b);
}

}  // namespace

std::vector<std::string> keys_without_effect(const std::vector<SweepAxis>& axes,
                                             std::span<const SweepPoint> points) {
  std::vector<std::string> keys;
  std::size_t pitch = 1;  // Between points of neighbouring values.
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const std::size_t values = axis->values.size();
    bool differs = values < 2;
    for (std::size_t i = 0; i + pitch < points.size(); ++i) {
      const bool has_next = i / pitch % values + 1 < values;
      differs = differs || (has_next && !comes_to_the_same(points[i], points[i + pitch]));
    }
    if (!differs) {
      keys.insert(keys.begin(), axis->key);
    }
    pitch *= values;
  }
  return keys;
}

}  // namespace stepsim
