#include "calibrate/import/step_times/step_time_residuals.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace stepsim {
namespace {

/// Beyond so many deviations a row counts with the square root of its excess.
constexpr double kOutlier = 2.5;

double robust(double residual) {
  const double size = std::abs(residual);
  return size <= kOutlier ? residual
                          : std::copysign(std::sqrt(kOutlier * (2 * size - kOutlier)), residual);
}

/// Adds residuals with derivatives `slopes`: `squares` is the sum of their weights, `products` that
/// of weights times residuals.
void add_derivatives(const std::vector<double>& slopes,
                     double squares,
                     double products,
                     NormalEquations& equations) {
  for (std::size_t i = 0; i < slopes.size(); ++i) {
    if (slopes[i] == 0) {
      continue;
    }
    equations.gradient[i] += products * slopes[i];
    for (std::size_t j = 0; j < slopes.size(); ++j) {
      equations.normal[i][j] += squares * slopes[i] * slopes[j];
    }
  }
}

}  // namespace

StepTimeResiduals::StepTimeResiduals(const std::vector<FittedRow>& rows,
                                     std::vector<StepTimePrior> priors,
                                     Points points)
    : priors_(std::move(priors)), points_(std::move(points)) {
  std::map<std::pair<std::size_t, bool>, std::size_t> known;
  const auto add = [&](const FittedRow& row, bool of_compute) {
    const auto [place, is_new] = known.try_emplace({row.point, of_compute}, series_.size());
    if (is_new) {
      series_.push_back(
          {row.point, of_compute ? &PointLogarithms::compute : &PointLogarithms::step, {}, {}});
    }
    Series& series = series_[place->second];
    series.logarithms.push_back(of_compute ? row.log_compute : row.log_step);
    series.scales.push_back(of_compute ? row.compute_scale : row.step_scale);
  };
  for (const FittedRow& row : rows) {
    add(row, false);
    if (row.has_compute) {
      add(row, true);
    }
  }
}

double StepTimeResiduals::squares(std::span<const double> vector) const {
  const std::vector<PointLogarithms> points = points_(vector);
  double sum = 0;
  for (const Series& series : series_) {
    const double value = points[series.point].*series.value;
    for (std::size_t row = 0; row < series.logarithms.size(); ++row) {
      const double residual = robust((value - series.logarithms[row]) * series.scales[row]);
      sum += residual * residual;
    }
  }
  for (std::size_t i = 0; i < priors_.size(); ++i) {
    const double residual = priors_[i].residual(vector[i]);
    sum += residual * residual;
  }
  return sum;
}

NormalEquations StepTimeResiduals::normal_equations(std::span<const double> vector) const {
  const std::size_t size = vector.size();
  const std::vector<PointLogarithms> here = points_(vector);
  std::vector<std::vector<PointLogarithms>> above;  // [coefficient][point]
  std::vector<std::vector<PointLogarithms>> below;
  std::vector<double> moved(vector.begin(), vector.end());
  for (std::size_t i = 0; i < size; ++i) {
    moved[i] = vector[i] + kDerivativeStep;
    above.push_back(points_(moved));
    moved[i] = vector[i] - kDerivativeStep;
    below.push_back(points_(moved));
    moved[i] = vector[i];
  }
  NormalEquations result{0, {size, std::vector<double>(size)}, std::vector<double>(size)};
  std::vector<double> slopes(size);
  for (const Series& series : series_) {
    const auto value = [&](const std::vector<PointLogarithms>& points) {
      return points[series.point].*series.value;
    };
    const double middle = value(here);
    double lowest = middle;
    double highest = middle;
    for (std::size_t i = 0; i < size; ++i) {
      lowest = std::min({lowest, value(above[i]), value(below[i])});
      highest = std::max({highest, value(above[i]), value(below[i])});
    }
    double weights = 0;
    double products = 0;
    for (std::size_t row = 0; row < series.logarithms.size(); ++row) {
      const double logarithm = series.logarithms[row];
      const double scale = series.scales[row];
      const double residual = robust((middle - logarithm) * scale);
      result.squares += residual * residual;
      if (std::max(highest - logarithm, logarithm - lowest) * scale <= kOutlier) {
        weights += scale * scale;
        products += scale * residual;
        continue;
      }
      for (std::size_t i = 0; i < size; ++i) {
        slopes[i] = (robust((value(above[i]) - logarithm) * scale) -
                     robust((value(below[i]) - logarithm) * scale)) /
                    (2 * kDerivativeStep);
      }
      add_derivatives(slopes, 1, residual, result);
    }
    for (std::size_t i = 0; i < size; ++i) {
      slopes[i] = (value(above[i]) - value(below[i])) / (2 * kDerivativeStep);
    }
    add_derivatives(slopes, weights, products, result);
  }
  for (std::size_t i = 0; i < size; ++i) {
    const StepTimePrior& prior = priors_[i];
    const double residual = prior.residual(vector[i]);
    const double slope = (prior.residual(vector[i] + kDerivativeStep) -
                          prior.residual(vector[i] - kDerivativeStep)) /
                         (2 * kDerivativeStep);
    result.squares += residual * residual;
    result.gradient[i] += slope * residual;
    result.normal[i][i] += slope * slope;
  }
  return result;
}

}  // namespace stepsim
