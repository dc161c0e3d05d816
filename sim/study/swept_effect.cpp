#include "sim/study/swept_effect.h"

#include <algorithm>
#include <tuple>
#include <variant>

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
                      point.prediction.largest_memory_mib,
                      point.prediction.out_of_memory.has_value(),
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

std::string reason_without_effect(const std::string& key, const SweepPoint& point) {
  const bool of_links = key.starts_with("cluster.topology");
  const bool of_network =
      of_links || key == "cluster.network_speed" || key.starts_with("cluster.all_reduce");
  const bool of_buckets = key.starts_with("ddp.") && key.find("bucket") != std::string::npos;
  if (!of_network && !of_buckets) {
    return "";
  }
  if (point.ranks == 1) {
    return "one rank reduces nothing";
  }
  const Prediction& prediction = point.prediction;
  const auto inside = [](const Note& note) {
    return std::holds_alternative<CollectivesInsidePasses>(note);
  };
  if (std::ranges::any_of(prediction.notes, inside)) {
    return "the profile was fitted to whole steps, which hold the all-reduces";
  }
  const auto from_links = [](const CollectiveOrigin& origin) {
    return origin.source == CollectiveSource::Analytic ||
           origin.source == CollectiveSource::NcclModel;
  };
  const std::vector<CollectiveOrigin>& origins = prediction.collective_origins;
  if (of_links && !origins.empty() && std::ranges::none_of(origins, from_links)) {
    return "what was measured or fitted has precedence over links (" + origins.front().text +
           "); sweep cluster.network_speed for a faster network";
  }
  return "";
}

}  // namespace stepsim
