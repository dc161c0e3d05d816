#include "calibrate/fit/knot_fit.h"

#include <algorithm>
#include <cmath>

#include "calibrate/samples/statistics.h"

namespace stepsim {
namespace {

constexpr std::size_t kMaxKnots = 40;
constexpr double kClose = 1.03;

/// Replaces inner neighbours within a factor `close` by their mean: a mean of both coordinates lies
/// on the line wherever the cost is one.
Knots merge_close(const Knots& knots, double close) {
  if (knots.size() < 4) {
    return knots;
  }
  Knots merged = {knots.front()};
  for (std::size_t i = 1; i + 1 < knots.size();) {
    const double first = knots[i].first;
    double x = 0;
    double y = 0;
    double count = 0;
    for (; i + 1 < knots.size() && knots[i].first <= first * close; ++i) {
      x += knots[i].first;
      y += knots[i].second;
      ++count;
    }
    merged.emplace_back(x / count, y / count);
  }
  merged.push_back(knots.back());
  return merged;
}

}  // namespace

Knots median_knots(Knots pairs) {
  std::ranges::sort(pairs);
  Knots knots;
  for (std::size_t i = 0; i < pairs.size();) {
    std::vector<double> same;
    const double x = pairs[i].first;
    for (; i < pairs.size() && pairs[i].first == x; ++i) {
      same.push_back(pairs[i].second);
    }
    knots.emplace_back(x, median(same));
  }
  return knots;
}

void make_monotone(Knots* knots) {
  // Relative changes weigh as 1 / t^2, so that a run's value is sum(w t) / sum(w).
  struct Run {
    double weights;
    double weighted;
    std::size_t count;
    [[nodiscard]] double value() const { return weighted / weights; }
  };
  std::vector<Run> runs;
  for (const auto& [x, seconds] : *knots) {
    const double weight = seconds > 0 ? 1 / (seconds * seconds) : 1;
    runs.push_back({weight, weight * seconds, 1});
    while (runs.size() > 1 && runs[runs.size() - 2].value() > runs.back().value()) {
      const Run last = runs.back();
      runs.pop_back();
      runs.back() = {runs.back().weights + last.weights,
                     runs.back().weighted + last.weighted,
                     runs.back().count + last.count};
    }
  }
  auto knot = knots->begin();
  for (const Run& run : runs) {
    for (std::size_t i = 0; i < run.count; ++i, ++knot) {
      knot->second = run.value();
    }
  }
}

Knots make_knots(Knots pairs) {
  const Knots distinct = median_knots(std::move(pairs));
  Knots knots = merge_close(distinct, kClose);
  for (double close = kClose; knots.size() > kMaxKnots;) {
    close *= 1.02;
    knots = merge_close(distinct, close);
  }
  return knots;
}

Knots prune_knots(const Knots& knots, double tolerance) {
  Knots kept = {knots.front()};
  std::size_t start = 0;
  for (std::size_t end = 2; end < knots.size(); ++end) {
    const Knots line = {knots[start], knots[end]};
    const bool straight =
        std::all_of(knots.begin() + static_cast<std::ptrdiff_t>(start) + 1,
                    knots.begin() + static_cast<std::ptrdiff_t>(end),
                    [&](const auto& knot) {
                      return std::abs(interpolate(line, knot.first) / knot.second - 1) < tolerance;
                    });
    if (!straight) {
      start = end - 1;
      kept.push_back(knots[start]);
    }
  }
  if (knots.size() > 1) {
    kept.push_back(knots.back());
  }
  return kept;
}

}  // namespace stepsim
