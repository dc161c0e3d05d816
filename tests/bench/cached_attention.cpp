#include "tests/bench/cached_attention.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Dense>

#include "calibrate/fit/nnls.h"

namespace stepsim::bench {
namespace {

constexpr double kTile = 128;
constexpr double kNoise = 0.01;
/// Half a microsecond, as the tables are rounded.
constexpr double kRounding = 0.3e-6;

std::vector<double> features(const PrefillRow& row) {
  return {1, row.chunk, row.cached, row.chunk * row.cached, row.chunk * row.chunk};
}

/// One part of the covariance: its deviation, and the length over which it fades.
double fading(double deviation, double length, double distance) {
  return deviation * deviation * std::exp(-distance / length);
}

/// Of row a, taken at `all` = chunk + cached tokens at most, and b: what is beyond the rows that
/// were fitted keeps the ratio of the last of them.
double covariance(const PrefillRow& a, double all, const PrefillRow& b) {
  const double a_all = std::min(a.chunk + a.cached, all);
  const double b_all = b.chunk + b.cached;
  const double distance =
      std::abs(std::log(std::min(a.chunk, all) / b.chunk)) + std::abs(std::log(a_all / b_all));
  double sum = fading(0.1, 4, distance) + fading(0.05, 0.2, distance);
  if (std::fmod(a.chunk, kTile) == std::fmod(b.chunk, kTile) &&
      std::fmod(a.cached, kTile) == std::fmod(b.cached, kTile)) {
    sum += fading(0.05, 2, distance);
  }
  if (std::ceil(a_all / kTile) == std::ceil(b_all / kTile)) {
    sum += fading(0.05, 1, distance);
  }
  return sum;
}

}  // namespace

CachedAttention::CachedAttention(std::span<const PrefillRow> rows)
    : rows_(rows.begin(), rows.end()) {
  std::vector<std::vector<double>> matrix;
  std::vector<double> seconds;
  for (const PrefillRow& row : rows_) {
    matrix.push_back(features(row));
    seconds.push_back(row.seconds);
    largest_ = std::max(largest_, row.chunk + row.cached);
  }
  coefficients_ = relative_nnls(matrix, seconds);
  const auto size = static_cast<Eigen::Index>(rows_.size());
  Eigen::MatrixXd covariances(size, size);
  Eigen::VectorXd target(size);
  for (Eigen::Index i = 0; i < size; ++i) {
    const PrefillRow& row = rows_[static_cast<std::size_t>(i)];
    for (Eigen::Index j = 0; j <= i; ++j) {
      covariances(i, j) = covariance(row, largest_, rows_[static_cast<std::size_t>(j)]);
    }
    covariances(i, i) += std::pow(kNoise, 2) + std::pow(kRounding / row.seconds, 2);
    target(i) = std::log(row.seconds / dot(coefficients_, features(row)));
  }
  const Eigen::VectorXd solution =
      Eigen::LLT<Eigen::Ref<Eigen::MatrixXd>>(covariances).solve(target);
  weights_.assign(solution.begin(), solution.end());
}

double CachedAttention::seconds(const PrefillRow& row) const {
  double log_ratio = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    log_ratio += weights_[i] * covariance(row, largest_, rows_[i]);
  }
  return dot(coefficients_, features(row)) * std::exp(log_ratio);
}

}  // namespace stepsim::bench
