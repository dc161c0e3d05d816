#include "calibrate/fit/collectives.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "calibrate/fit/holdout.h"
#include "calibrate/fit/piecewise_linear.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/compute/knots.h"
#include "costmodel/network/collective_table.h"

namespace stepsim {
namespace {

using Group = std::vector<CollectiveSample>;

constexpr double kKiB = 1024;
constexpr double kMiB = 1024 * kKiB;
/// A tail is drawn from three sizes at least.
constexpr std::size_t kFewestBelow = 3;
constexpr double kAllKnots = 1e300;

struct Band {
  const char* name;
  double lo;  ///< Bytes; from here
  double hi;  ///< to below here.
};
constexpr Band kBands[] = {{"< 64 KiB", 0, 64 * kKiB},
                           {"64 KiB..16 MiB", 64 * kKiB, 16 * kMiB + 1},
                           {"> 16 MiB", 16 * kMiB + 1, 1e300}};

/// What the neighbours of knot i predict for it.
double without(const std::vector<std::pair<double, double>>& knots, std::size_t i) {
  const std::vector<std::pair<double, double>> neighbours = {knots[i - 1], knots[i + 1]};
  return interpolate(neighbours, knots[i].first);
}

BandErrors band_errors(const Band& band, const Group& group, const CollectiveCost& cost) {
  ErrorSum sum;
  double worst = 0;
  std::vector<double> spreads;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const double x = cost.knots[i].first;
    if (x < band.lo || x >= band.hi) {
      continue;
    }
    spreads.push_back(group[i].noise);
    if (i > 0 && i + 1 < group.size()) {
      const double predicted = without(cost.knots, i);
      sum.add(predicted, group[i].seconds);
      worst = std::max(worst, std::abs(predicted / group[i].seconds - 1));
    }
  }
  BandErrors errors{band.name, sum.mean(), std::nullopt, std::nullopt};
  if (errors.mean) {
    errors.worst = worst;
  }
  if (!spreads.empty()) {
    errors.spread = median(spreads);
  }
  return errors;
}

/// A size is in a slow region when a larger one is faster by more than this, or when its bandwidth
/// is below that of a smaller one by more than kSlower.
constexpr double kFaster = 0.02;
constexpr double kSlower = 0.1;
/// Slow sizes at the end of a sweep that reach so many times as far are how the network is.
constexpr double kNoRegion = 4;
constexpr double kOctave = 2;
/// A sweep that ends in a slow region is back on the line of the others at so many times its size.
constexpr double kBack = 2;

/// The knots that no larger size undercuts.
Knots without_slow_ones(const Knots& knots) {
  Knots kept;
  double least = HUGE_VAL;
  for (auto knot = knots.rbegin(); knot != knots.rend(); ++knot) {
    if (knot->second <= least * (1 + kFaster)) {
      kept.push_back(*knot);
    }
    least = std::min(least, knot->second);
  }
  std::ranges::reverse(kept);
  return kept;
}

/// Whether the last octave has few knots, so that one of them bends what goes on from there.
bool is_sparse(const Knots& knots) {
  constexpr std::size_t kFew = 4;
  return knots.size() <= kFew ||
         knots[knots.size() - 1 - kFew].first < knots.back().first / kOctave;
}

/// The knots that no slow region holds; all of them where few would remain, and of a dense sweep,
/// whose times rise and fall with every few sizes.
Knots sound_knots(const Knots& knots) {
  if (!is_sparse(knots)) {
    return knots;
  }
  Knots sound;
  Knots last_slow;  // Those since the last sound one.
  double least_per_byte = HUGE_VAL;
  for (const auto& knot : without_slow_ones(knots)) {
    const double per_byte = knot.second / knot.first;
    if (per_byte <= least_per_byte * (1 + kSlower)) {
      sound.push_back(knot);
      last_slow.clear();
    } else {
      last_slow.push_back(knot);
    }
    least_per_byte = std::min(least_per_byte, per_byte);
  }
  if (!last_slow.empty() && last_slow.back().first >= kNoRegion * last_slow.front().first) {
    sound.insert(sound.end(), last_slow.begin(), last_slow.end());
  }
  return sound.size() < kFewestBelow ? knots : sound;
}

/// Between two slopes: that of the last octave, and that of the last straight segment, which starts
/// at a change of algorithm or protocol. Transfers grow more efficient with their size, so the
/// lower of them counts twice.
double slope_beyond(const Knots& knots) {
  const auto segment = std::span(knots).subspan(last_segment_start(knots));
  const double slope = tail_slope({segment.begin(), segment.end()}, kAllKnots);
  CollectiveCost table;
  table.knots = knots;
  const double octave = default_tail(table);
  return (octave + slope + std::min(octave, slope)) / 3;
}

/// The slope of the sound knots. Where the last one is not among them, the tail leads back to their
/// line, and time does not fall on the way.
void set_tail(CollectiveCost& cost) {
  const Knots sound = sound_knots(cost.knots);
  const auto [last, seconds] = cost.knots.back();
  double slope = slope_beyond(sound);
  if (sound.back().first < last) {
    const double back = sound.back().second + slope * (kBack * last - sound.back().first);
    slope = std::clamp((back - seconds) / ((kBack - 1) * last), 0.0, slope);
  }
  cost.tail_seconds_per_byte = slope;
}

/// Mean |error| of the sizes above half the largest, which the table of the others predicts.
std::optional<double> beyond_error(const CollectiveCost& cost) {
  const double half = cost.knots.back().first / 2;
  CollectiveCost lower = cost;
  std::erase_if(lower.knots, [half](const auto& knot) { return knot.first > half; });
  if (lower.knots.size() < kFewestBelow) {
    return std::nullopt;
  }
  set_tail(lower);
  ErrorSum sum;
  for (auto knot = cost.knots.begin() + static_cast<std::ptrdiff_t>(lower.knots.size());
       knot != cost.knots.end();
       ++knot) {
    const Bytes bytes(static_cast<std::int64_t>(knot->first));
    sum.add(table_cost(lower, bytes, HUGE_VAL, "").seconds, knot->second);
  }
  return sum.mean();
}

/// Quantiles of single times over their mean, of the size with most repetitions.
std::vector<double> scatter(const Group& group) {
  constexpr int kQuantiles = 21;
  constexpr std::size_t kFewest = 50;
  const auto most = std::ranges::max_element(group, [](const auto& a, const auto& b) {
    return a.all_seconds.size() < b.all_seconds.size();
  });
  std::vector<double> ratios;
  if (most->all_seconds.size() < kFewest) {
    return ratios;
  }
  for (int i = 0; i < kQuantiles; ++i) {
    const double q = static_cast<double>(i) / (kQuantiles - 1);
    // The last level is the slowest 1 %, as in the mean.
    ratios.push_back(quantile(most->all_seconds, std::min(q, 0.99)) / most->seconds);
  }
  return ratios;
}

CollectiveFit fit_group(const Group& group) {
  CollectiveFit fit;
  fit.cost.kind = group.front().kind;
  fit.cost.ranks = group.front().ranks;
  fit.cost.nodes = group.front().nodes;
  fit.floor = group.front().seconds;
  for (const CollectiveSample& sample : group) {
    fit.cost.knots.emplace_back(static_cast<double>(sample.bytes), sample.seconds);
    fit.floor = std::min(fit.floor, sample.seconds);
  }
  set_tail(fit.cost);
  ErrorSum all;
  for (std::size_t i = 1; i + 1 < group.size(); ++i) {
    all.add(without(fit.cost.knots, i), group[i].seconds);
  }
  fit.cost.errors = {all.mean(), std::nullopt, beyond_error(fit.cost), all.bias()};
  fit.cost.spread = scatter(group);
  for (const Band& band : kBands) {
    fit.bands.push_back(band_errors(band, group, fit.cost));
  }
  return fit;
}

}  // namespace

std::vector<CollectiveFit> fit_collectives(const std::vector<CollectiveSample>& samples) {
  using Key = std::tuple<std::string, int, int>;
  std::map<Key, Group> groups;
  std::map<Key, double> pipelined_floors;
  for (const CollectiveSample& sample : samples) {
    const Key key(sample.kind, sample.ranks, sample.nodes);
    if (sample.seconds > 0 && sample.pipelined) {
      const double floor = pipelined_floors.emplace(key, sample.seconds).first->second;
      pipelined_floors[key] = std::min(floor, sample.seconds);
    } else if (sample.seconds > 0) {
      groups[key].push_back(sample);
    }
  }
  std::vector<CollectiveFit> fits;
  for (auto& [key, group] : groups) {
    std::ranges::sort(group, [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    fits.push_back(fit_group(group));
    if (pipelined_floors.count(key) > 0) {
      fits.back().pipelined_floor = pipelined_floors[key];
    }
  }
  return fits;
}

}  // namespace stepsim
