#include "calibrate/fit/features_ratio_fit.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "calibrate/fit/knot_fit.h"
#include "calibrate/fit/nnls.h"
#include "calibrate/fit/smoother.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/cost_features.h"

namespace stepsim {
namespace {

/// What repeated medians of one kernel scatter by, besides the clock's resolution.
constexpr double kNoise = 0.007;
constexpr double kUpperPart = 0.8;
constexpr double kPrune = 1e-3;
constexpr double kTileRows = 128;

/// Fits the coefficients of the features, and leaves out those that turn out 0.
void fit_features(const FormCandidate& candidate, std::span<const OpPoint> points, OpCost& cost) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const auto& [op, point, series] : points) {
    rows.push_back(feature_row(candidate, *op, point.batch));
    seconds.push_back(point.seconds);
  }
  const std::vector<double> coefficients = relative_nnls(rows, seconds);
  for (std::size_t i = 0; i < coefficients.size(); ++i) {
    if (coefficients[i] > 0) {
      cost.features.push_back(candidate.features[i]);
      cost.coefficients.push_back(coefficients[i]);
    }
  }
}

/// The smallest difference of two different times: what the clock or a rounding resolves.
double resolution(std::span<const OpPoint> points) {
  std::vector<double> seconds =
      mapped(points, [](const OpPoint& point) { return point.point.seconds; });
  std::ranges::sort(seconds);
  double least = seconds.back();
  for (std::size_t i = 1; i < seconds.size(); ++i) {
    // Binary fractions of decimal figures differ by rounding.
    if (seconds[i] > seconds[i - 1] * (1 + 1e-9)) {
      least = std::min(least, seconds[i] - seconds[i - 1]);
    }
  }
  return seconds.front() < seconds.back() ? least : 0;
}

/// The measured values and the ends of every block between them, ascending.
std::vector<double> knot_places(const std::vector<double>& x, std::int64_t step) {
  std::vector<double> places = x;
  if (step > 0) {
    const auto width = static_cast<double>(step);
    for (double end = std::ceil(x.front() / width) * width; end < x.back(); end += width) {
      places.push_back(end);
      if (end + 1 < x.back()) {
        places.push_back(end + 1);
      }
    }
  }
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

/// The time of a GEMM if nothing changed inside a tile of kTileRows: that of the next measured size
/// in the tile; absent where there is none.
std::optional<double> seconds_of_tile(const Knots& measured, double rows) {
  const auto next = std::ranges::lower_bound(measured, rows, {}, &Knots::value_type::first);
  const bool inside =
      next != measured.end() && std::ceil(next->first / kTileRows) == std::ceil(rows / kTileRows);
  return inside ? std::optional(next->second) : std::nullopt;
}

/// Whether the sizes of a GEMM are whole tiles, but for a tenth of them: they cannot tell where
/// inside a tile its time steps.
bool mostly_whole_tiles(const Op& op, const Knots& measured) {
  const auto partial = [](const auto& knot) {
    return knot.first > kTileRows && std::fmod(knot.first, kTileRows) != 0;
  };
  return op.op_class == OpClass::Gemm && op.rows == RowUnit::Tokens &&
         10 * std::ranges::count_if(measured, partial) <= std::ssize(measured);
}

}  // namespace

void fit_features_ratio(const FormCandidate& candidate,
                        std::span<const OpPoint> points,
                        OpCost& cost) {
  cost.processors = needs_processors(candidate.features) ? candidate.processors : 0;
  fit_features(candidate, points, cost);
  const double rounding = resolution(points) / std::sqrt(12.0);
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> noise;
  Knots times;
  for (const auto& [op, point, series] : points) {
    const double sum =
        evaluate(cost, *op, point.batch).seconds;  // No knots yet: the features only.
    x.push_back(ratio_variable(*op, point.batch));
    y.push_back(std::log(point.seconds / sum));
    noise.push_back(std::max(kNoise, rounding / point.seconds));
    times.emplace_back(x.back(), point.seconds);
  }
  times = median_knots(std::move(times));
  const Smoother curve(x, y, noise, static_cast<double>(candidate.step));
  const std::vector<double> measured = x;
  std::ranges::sort(x);
  const Op& op = *points.front().op;
  const bool whole_tiles = mostly_whole_tiles(op, times);
  Knots knots = mapped(knot_places(x, candidate.step), [&](const double place) {
    const double ratio = std::exp(curve.at(place));
    const auto of_tile = whole_tiles ? seconds_of_tile(times, place) : std::nullopt;
    if (!of_tile) {
      return std::pair(place, ratio);
    }
    // The curve goes from tile to tile, the time of a tile in steps: the mean errs less than
    // either.
    const auto rows = static_cast<std::int64_t>(place);
    const double sum = evaluate(cost, op, {1, rows, rows, place * place}).seconds;
    return std::pair(place, std::sqrt(ratio * *of_tile / sum));
  });
  double upper = 0;
  int count = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (measured[i] >= kUpperPart * x.back()) {
      upper += std::exp(y[i]);
      ++count;
    }
  }
  cost.knots = prune_knots(knots, kPrune);
  cost.knots.emplace_back(x.back() + 1, upper / count);
}

}  // namespace stepsim
