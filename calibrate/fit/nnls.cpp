#include "calibrate/fit/nnls.h"

#include <algorithm>

#include <Eigen/Dense>

namespace stepsim {
namespace {

/// Least squares over the columns in `free`; the others stay 0.
Eigen::VectorXd solve_free(const Eigen::MatrixXd& a,
                           const Eigen::VectorXd& b,
                           const std::vector<char>& free) {
  std::vector<Eigen::Index> columns;
  for (Eigen::Index j = 0; j < a.cols(); ++j) {
    if (free[static_cast<std::size_t>(j)] != 0) {
      columns.push_back(j);
    }
  }
  Eigen::MatrixXd part(a.rows(), static_cast<Eigen::Index>(columns.size()));
  for (std::size_t c = 0; c < columns.size(); ++c) {
    part.col(static_cast<Eigen::Index>(c)) = a.col(columns[c]);
  }
  // Rank-revealing: collinear features (one sample count everywhere) must not blow up.
  const Eigen::VectorXd solution = part.colPivHouseholderQr().solve(b);
  Eigen::VectorXd full = Eigen::VectorXd::Zero(a.cols());
  for (std::size_t c = 0; c < columns.size(); ++c) {
    full(columns[c]) = solution(static_cast<Eigen::Index>(c));
  }
  return full;
}

/// Moves x towards `target` until the first free coefficient reaches 0, and fixes that one (and
/// whichever reached it too), so that the caller's loop ends.
void step_back(const Eigen::VectorXd& target, Eigen::VectorXd* x, std::vector<char>* free) {
  double alpha = 1;
  Eigen::Index first = -1;
  for (Eigen::Index j = 0; j < x->size(); ++j) {
    if ((*free)[static_cast<std::size_t>(j)] != 0 && target(j) <= 0) {
      const double gap = (*x)(j)-target(j);
      const double reach = gap > 0 ? (*x)(j) / gap : 0;
      if (first < 0 || reach < alpha) {
        alpha = reach;
        first = j;
      }
    }
  }
  *x += alpha * (target - *x);
  for (Eigen::Index j = 0; j < x->size(); ++j) {
    const bool zero = target(j) <= 0 && (*x)(j) <= 1e-14;
    if ((*free)[static_cast<std::size_t>(j)] != 0 && (j == first || zero)) {
      (*free)[static_cast<std::size_t>(j)] = 0;
      (*x)(j) = 0;
    }
  }
}

Eigen::VectorXd lawson_hanson(const Eigen::MatrixXd& a, const Eigen::VectorXd& b) {
  const auto columns = static_cast<std::size_t>(a.cols());
  std::vector<char> free(columns, 0);
  Eigen::VectorXd x = Eigen::VectorXd::Zero(a.cols());
  const double tolerance = 1e-11 * static_cast<double>(a.rows());
  // Each round frees one column; three times the columns is the customary bound on cycling.
  for (std::size_t round = 0; round < 3 * columns; ++round) {
    const Eigen::VectorXd gradient = a.transpose() * (b - a * x);
    Eigen::Index best = -1;
    for (Eigen::Index j = 0; j < a.cols(); ++j) {
      if (free[static_cast<std::size_t>(j)] == 0 && gradient(j) > tolerance &&
          (best < 0 || gradient(j) > gradient(best))) {
        best = j;
      }
    }
    if (best < 0) {
      break;
    }
    free[static_cast<std::size_t>(best)] = 1;
    Eigen::VectorXd target = solve_free(a, b, free);
    while (std::ranges::find(free, 1) != free.end()) {
      bool inside = true;
      for (std::size_t j = 0; j < columns; ++j) {
        inside = inside && (free[j] == 0 || target(static_cast<Eigen::Index>(j)) > 0);
      }
      if (inside) {
        x = target;
        break;
      }
      step_back(target, &x, &free);
      target = solve_free(a, b, free);
    }
  }
  return x;
}

}  // namespace

std::vector<double> relative_nnls(const std::vector<std::vector<double>>& rows,
                                  const std::vector<double>& y,
                                  const std::vector<double>& weights) {
  if (rows.empty()) {
    return {};
  }
  const auto height = static_cast<Eigen::Index>(rows.size());
  const auto width = static_cast<Eigen::Index>(rows.front().size());
  Eigen::MatrixXd a(height, width);
  Eigen::VectorXd ones = Eigen::VectorXd::Ones(height);
  for (Eigen::Index i = 0; i < height; ++i) {
    const auto row = static_cast<std::size_t>(i);
    ones(i) = weights.empty() ? 1 : weights[row];
    for (Eigen::Index j = 0; j < width; ++j) {
      a(i, j) = ones(i) * rows[row][static_cast<std::size_t>(j)] / y[row];
    }
  }
  Eigen::VectorXd scale(width);
  for (Eigen::Index j = 0; j < width; ++j) {
    const double largest = a.col(j).maxCoeff();
    scale(j) = largest > 0 ? largest : 1;
    a.col(j) /= scale(j);
  }
  const Eigen::VectorXd x = lawson_hanson(a, ones);
  std::vector<double> result;
  for (Eigen::Index j = 0; j < width; ++j) {
    result.push_back(x(j) / scale(j));
  }
  return result;
}

double dot(const std::vector<double>& coefficients, const std::vector<double>& row) {
  double sum = 0;
  for (std::size_t j = 0; j < coefficients.size(); ++j) {
    sum += coefficients[j] * row[j];
  }
  return sum;
}

}  // namespace stepsim
