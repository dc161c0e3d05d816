#include "calibrate/fit/posterior.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <Eigen/Dense>

namespace stepsim {
namespace {

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

std::span<const double> numbers_of(const Eigen::VectorXd& vector) {
  return {vector.data(), static_cast<std::size_t>(vector.size())};
}

}  // namespace

Posterior fit_posterior(const LeastSquares& problem, std::vector<double> start) {
  constexpr int kMostRounds = 60;
  constexpr double kEnough = 1e-10;  // Relative gain below which the fit is done.
  Eigen::VectorXd x = vector_of(start);
  NormalEquations here = problem.normal_equations(start);
  double damping = 1e-3;
  for (int round = 0; round < kMostRounds; ++round) {
    const Eigen::MatrixXd normal = matrix_of(here.normal);
    const Eigen::VectorXd gradient = vector_of(here.gradient);
    bool better = false;
    double gain = 0;
    for (int attempt = 0; attempt < 12 && !better; ++attempt) {
      Eigen::MatrixXd damped = normal;
      damped.diagonal() *= 1 + damping;
      const Eigen::VectorXd moved = x - damped.ldlt().solve(gradient);
      const double there = problem.squares(numbers_of(moved));
      better = std::isfinite(there) && there < here.squares;
      if (better) {
        gain = (here.squares - there) / std::max(here.squares, 1e-300);
        x = moved;
        damping = std::max(damping / 5, 1e-9);
      } else {
        damping *= 5;
      }
    }
    if (better) {
      here = problem.normal_equations(numbers_of(x));
    }
    if (!better || gain < kEnough) {
      break;
    }
  }
  const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(x.size(), x.size());
  const Eigen::MatrixXd covariance = matrix_of(here.normal).ldlt().solve(identity);
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
