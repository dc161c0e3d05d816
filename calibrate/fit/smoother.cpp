#include "calibrate/fit/smoother.h"

#include <cmath>

#include <Eigen/Dense>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

// Standard deviations and lengths, as fractions and in units of log x (of blocks: in blocks).
// Curves of GPU kernels differ from their first estimate by some percent.
constexpr double kLevel = 0.05;
constexpr double kSlow = 0.03;
constexpr double kSlowLength = 0.5;
constexpr double kBlocks = 0.05;
constexpr double kBlocksLength = 2;
constexpr double kSameBlock = 0.02;
constexpr double kQuick = 0.02;
constexpr double kQuickLength = 0.02;
// Without blocks everything that is quick is in one part.
constexpr double kFree = 0.1;
constexpr double kFreeLength = 0.3;

double square(double value) {
  return value * value;
}

}  // namespace

Smoother::Smoother(std::vector<double> x,
                   std::span<const double> y,
                   std::span<const double> noise,
                   double step)
    : x_(std::move(x)), step_(step) {
  const auto size = static_cast<Eigen::Index>(x_.size());
  log_x_ = mapped(x_, [](double value) { return std::log(value); });
  Eigen::MatrixXd matrix(size, size);
  Eigen::VectorXd target(size);
  for (Eigen::Index i = 0; i < size; ++i) {
    const auto row = static_cast<std::size_t>(i);
    target(i) = y[row];
    for (Eigen::Index j = 0; j <= i; ++j) {
      matrix(i, j) = covariance(x_[row], log_x_[row], static_cast<std::size_t>(j));
    }
    matrix(i, i) += square(noise[row]);
  }
  const Eigen::LLT<Eigen::MatrixXd> factor(matrix);
  const Eigen::VectorXd solution = factor.solve(target);
  weights_.assign(solution.begin(), solution.end());
}

double Smoother::covariance(double x, double log_x, std::size_t point) const {
  const double distance = std::abs(log_x - log_x_[point]);
  double sum = square(kLevel) + square(kSlow) * std::exp(-square(distance / kSlowLength) / 2);
  if (step_ > 0) {
    const double blocks = std::abs(std::ceil(x / step_) - std::ceil(x_[point] / step_));
    sum += square(kBlocks) * std::exp(-blocks / kBlocksLength);
    sum += blocks == 0 ? square(kSameBlock) : 0;
    sum += square(kQuick) * std::exp(-distance / kQuickLength);
  } else {
    sum += square(kFree) * std::exp(-distance / kFreeLength);
  }
  return sum;
}

double Smoother::at(double x) const {
  const double log_x = std::log(x);
  double sum = 0;
  for (std::size_t i = 0; i < x_.size(); ++i) {
    sum += weights_[i] * covariance(x, log_x, i);
  }
  return sum;
}

}  // namespace stepsim
