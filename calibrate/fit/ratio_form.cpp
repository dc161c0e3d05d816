#include "calibrate/fit/ratio_form.h"

#include <algorithm>
#include <cmath>

#include "calibrate/fit/forms.h"
#include "calibrate/fit/nnls.h"
#include "calibrate/fit/smoother.h"
#include "costmodel/compute/op_cost.h"

namespace stepsim {
namespace {

using Knots = std::vector<std::pair<double, double>>;

/// What repeated medians of one kernel scatter by, besides the clock's resolution.
constexpr double kNoise = 0.007;
constexpr double kUpperPart = 0.8;
constexpr double kPrune = 1e-3;

/// Coefficients of the features, without those that turn out 0.
void fit_features(const std::vector<std::string>& features,
                  const Op& op,
                  std::span<const SeriesPoint> points,
                  OpCost* cost) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const SeriesPoint& point : points) {
    std::vector<double> row;
    for (const std::string& feature : features) {
      row.push_back(feature_value(feature, op, point.batch, cost->processors));
    }
    rows.push_back(std::move(row));
    seconds.push_back(point.seconds);
  }
  const std::vector<double> coefficients = relative_nnls(rows, seconds);
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (coefficients[i] > 0) {
      cost->features.push_back(features[i]);
      cost->coefficients.push_back(coefficients[i]);
    }
  }
}

/// The smallest difference of two different times: what the clock or a rounding resolves.
double resolution(std::span<const SeriesPoint> points) {
  std::vector<double> seconds;
  for (const SeriesPoint& point : points) {
    seconds.push_back(point.seconds);
  }
  std::sort(seconds.begin(), seconds.end());
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
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

}  // namespace

void fit_ratio_form(const std::vector<std::string>& features,
                    std::int64_t step,
                    std::int64_t processors,
                    const Op& op,
                    std::span<const SeriesPoint> points,
                    OpCost* cost) {
  cost->processors = needs_processors(features) ? processors : 0;
  fit_features(features, op, points, cost);
  const double rounding = resolution(points) / std::sqrt(12.0);
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> noise;
  for (const SeriesPoint& point : points) {
    const double first = evaluate(*cost, op, point.batch).seconds;
    x.push_back(ratio_variable(op, point.batch));
    y.push_back(std::log(point.seconds / first));
    noise.push_back(std::max(kNoise, rounding / point.seconds));
  }
  const Smoother curve(x, y, noise, static_cast<double>(step));
  std::sort(x.begin(), x.end());
  Knots knots;
  for (const double place : knot_places(x, step)) {
    knots.emplace_back(place, std::exp(curve.at(place)));
  }
  double upper = 0;
  int count = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (ratio_variable(op, points[i].batch) >= kUpperPart * x.back()) {
      upper += std::exp(y[i]);
      ++count;
    }
  }
  cost->knots = prune_knots(knots, kPrune);
  cost->knots.emplace_back(x.back() + 1, upper / count);
}

}  // namespace stepsim
