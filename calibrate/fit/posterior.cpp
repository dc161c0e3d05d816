#include "calibrate/fit/posterior.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include <Eigen/Dense>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr double kDifference = 1e-4;

Eigen::VectorXd at_coefficients(const Residuals& residuals, const Eigen::VectorXd& x) {
  const std::vector<double> values =
      residuals(std::span(x.data(), static_cast<std::size_t>(x.size())));
  return Eigen::Map<const Eigen::VectorXd>(values.data(), static_cast<Eigen::Index>(values.size()));
}

/// [residual, coefficient]
Eigen::MatrixXd derivatives(const Residuals& residuals, const Eigen::VectorXd& x) {
  Eigen::MatrixXd result;
  for (Eigen::Index i = 0; i < x.size(); ++i) {
    Eigen::VectorXd above = x;
    Eigen::VectorXd below = x;
    above(i) += kDifference;
    below(i) -= kDifference;
    const Eigen::VectorXd column =
        (at_coefficients(residuals, above) - at_coefficients(residuals, below)) / (2 * kDifference);
    if (result.size() == 0) {
      result.resize(column.size(), x.size());
    }
    result.col(i) = column;
  }
  return result;
}

Eigen::MatrixXd matrix_of(const std::vector<std::vector<double>>& rows) {
  const auto size = static_cast<Eigen::Index>(rows.size());
  Eigen::MatrixXd matrix(size, size);
  for (Eigen::Index i = 0; i < size; ++i) {
    for (Eigen::Index j = 0; j < size; ++j) {
      matrix(i, j) = rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
    }
  }
  return matrix;
}

std::vector<std::vector<double>> rows_of(const Eigen::MatrixXd& matrix) {
  std::vector<std::vector<double>> rows(static_cast<std::size_t>(matrix.rows()));
  for (Eigen::Index i = 0; i < matrix.rows(); ++i) {
    for (Eigen::Index j = 0; j < matrix.cols(); ++j) {
      rows[static_cast<std::size_t>(i)].push_back(matrix(i, j));
    }
  }
  return rows;
}

Eigen::VectorXd vector_of(std::span<const double> numbers) {
  return Eigen::Map<const Eigen::VectorXd>(numbers.data(),
                                           static_cast<Eigen::Index>(numbers.size()));
}

}  // namespace

Posterior fit_posterior(const Residuals& residuals, std::vector<double> start) {
  constexpr int kMostRounds = 60;
  constexpr double kEnough = 1e-10;  // Relative gain below which the fit is done.
  Eigen::VectorXd x = vector_of(start);
  Eigen::VectorXd r = at_coefficients(residuals, x);
  if (r.size() < x.size()) {
    throw std::logic_error("fewer residuals than coefficients");
  }
  double damping = 1e-3;
  for (int round = 0; round < kMostRounds; ++round) {
    const Eigen::MatrixXd j = derivatives(residuals, x);
    const Eigen::MatrixXd normal = j.transpose() * j;
    const Eigen::VectorXd gradient = j.transpose() * r;
    bool better = false;
    double gain = 0;
    for (int attempt = 0; attempt < 12 && !better; ++attempt) {
      Eigen::MatrixXd damped = normal;
      damped.diagonal() *= 1 + damping;
      const Eigen::VectorXd moved = x - damped.ldlt().solve(gradient);
      const Eigen::VectorXd there = at_coefficients(residuals, moved);
      better = there.allFinite() && there.squaredNorm() < r.squaredNorm();
      if (better) {
        gain = (r.squaredNorm() - there.squaredNorm()) / std::max(r.squaredNorm(), 1e-300);
        x = moved;
        r = there;
        damping = std::max(damping / 5, 1e-9);
      } else {
        damping *= 5;
      }
    }
    if (!better || gain < kEnough) {
      break;
    }
  }
  const Eigen::MatrixXd j = derivatives(residuals, x);
  const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(x.size(), x.size());
  const Eigen::MatrixXd covariance = Eigen::MatrixXd(j.transpose() * j).ldlt().solve(identity);
  return {{x.data(), x.data() + x.size()}, rows_of(covariance)};
}

std::vector<std::vector<double>> posterior_draws(const Posterior& posterior,
                                                 int count,
                                                 std::uint64_t seed) {
  const Eigen::LLT<Eigen::MatrixXd> root(matrix_of(posterior.covariance));
  const Eigen::VectorXd mode = vector_of(posterior.mode);
  // Bits of a generator whose sequence the standard fixes; its distributions differ by library.
  std::mt19937_64 bits(seed);
  const auto uniform = [&bits] { return (static_cast<double>(bits() >> 11U) + 0.5) * 0x1p-53; };
  std::vector<std::vector<double>> draws;
  for (int pair = 0; pair < count / 2; ++pair) {
    Eigen::VectorXd normals(mode.size());
    for (double& one : normals) {
      constexpr double kTwoPi = 6.283185307179586;
      const double radius = std::sqrt(-2 * std::log(uniform()));
      one = radius * std::cos(kTwoPi * uniform());
    }
    const Eigen::VectorXd step = root.matrixL() * normals;
    for (const double side : {1.0, -1.0}) {
      const Eigen::VectorXd draw = mode + side * step;
      draws.emplace_back(draw.data(), draw.data() + draw.size());
    }
  }
  return draws;
}

std::vector<std::vector<double>> updated_covariance(
    const std::vector<std::vector<double>>& covariance,
    std::span<const double> gradient,
    double deviation) {
  const Eigen::MatrixXd before = matrix_of(covariance);
  const Eigen::VectorXd g = vector_of(gradient);
  const Eigen::VectorXd moved = before * g;
  return rows_of(before - moved * moved.transpose() / (deviation * deviation + g.dot(moved)));
}

std::vector<double> deviations_by_data(const std::vector<std::vector<double>>& covariance,
                                       std::span<const double> priors) {
  constexpr double kLeft = 0.01;  // Of another prior's precision, where that is ten times as wide.
  const Eigen::MatrixXd before = matrix_of(covariance);
  const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(before.rows(), before.cols());
  Eigen::MatrixXd precision = before.ldlt().solve(identity);
  const Eigen::VectorXd taken = vector_of(priors).cwiseAbs2().cwiseInverse() * (1 - kLeft);
  precision.diagonal() -= taken;
  std::vector<double> deviations;
  for (Eigen::Index i = 0; i < precision.rows(); ++i) {
    precision(i, i) += taken(i);
    const Eigen::VectorXd column = precision.ldlt().solve(identity.col(i));
    deviations.push_back(std::sqrt(std::max(column(i), 0.0)));
    precision(i, i) -= taken(i);
  }
  return deviations;
}

double variance_along(const std::vector<std::vector<double>>& covariance,
                      std::span<const double> gradient) {
  const Eigen::VectorXd g = vector_of(gradient);
  return g.dot(matrix_of(covariance) * g);
}

}  // namespace stepsim
