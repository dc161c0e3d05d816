#include "calibrate/fit/warnings.h"

#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "calibrate/samples/statistics.h"
#include "costmodel/compute/op_cost.h"

namespace stepsim {
namespace {

constexpr std::size_t kFewestValues = 4;
constexpr double kGrown = 4;
constexpr double kSame = 1e-6;
constexpr double kFallen = 0.7;
constexpr double kNoisySpread = 0.2;

/// (size, median seconds), by size. Dense attention is taken per sample, as its tables are.
std::map<double, double> medians(const Series& series) {
  std::map<double, std::vector<double>> times;
  for (const SeriesPoint& point : series.points) {
    const double samples =
        is_dense_attention(series.op.op_class) ? static_cast<double>(point.batch.samples) : 1.0;
    times[order_variable(series.op, point.batch)].push_back(point.seconds / samples);
  }
  std::map<double, double> result;
  for (const auto& [x, seconds] : times) {
    result[x] = median(seconds);
  }
  return result;
}

std::string described(const Op& op) {
  std::string text = fmt::format("{} {}", name_of(op.op_class), name_of(op.pass));
  if (op.n > 0) {
    text += op.k > 0 ? fmt::format(" n={} k={}", op.n, op.k) : fmt::format(" n={}", op.n);
  }
  return text;
}

}  // namespace

std::vector<std::string> fit_warnings(const Series& series, const OpCost& fitted) {
  std::vector<std::string> warnings;
  if (series.op.rows == RowUnit::Elements) {
    return warnings;
  }
  const std::string name = described(series.op);
  const std::map<double, double> points = medians(series);
  if (points.size() < kFewestValues) {
    warnings.push_back(fmt::format(
        "{}: only {} different sizes were measured; its error is unknown", name, points.size()));
    return warnings;
  }
  double least = points.begin()->second;
  double most = least;
  double worst = 1;
  double worst_x = 0;
  for (const auto& [x, seconds] : points) {
    least = std::min(least, seconds);
    most = std::max(most, seconds);
    if (seconds / most < worst) {
      worst = seconds / most;
      worst_x = x;
    }
  }
  if (most <= least * (1 + kSame) && points.rbegin()->first > kGrown * points.begin()->first) {
    warnings.push_back(fmt::format("{}: takes the same time at all sizes from {} to {}",
                                   name,
                                   points.begin()->first,
                                   points.rbegin()->first));
  }
  if (worst < kFallen) {
    warnings.push_back(fmt::format("{}: at size {} it took {:.0f} % less than at a smaller size",
                                   name,
                                   worst_x,
                                   (1 - worst) * 100));
  }
  if (fitted.errors.random.value_or(0) > kNoisySpread) {
    constexpr double kTelling = 10;  // A percentage of more says nothing.
    const double error = *fitted.errors.random;
    warnings.push_back(fmt::format(
        "{}: off by {} on held-out points; too noisy, or a form that is not known",
        name,
        error > kTelling ? "more than 10 times" : fmt::format("{:.0f} %", error * 100)));
  }
  return warnings;
}

}  // namespace stepsim
