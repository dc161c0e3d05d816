#include "calibrate/fit/nnls.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Dense>

namespace stepsim {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// So many rows are reduced at once: they lie in a processor's cache.
constexpr std::size_t kMostRows = 512;

Eigen::Map<const RowMajor> row_major(const std::vector<double>& rows, std::size_t width) {
  return {rows.data(),
          static_cast<Eigen::Index>(rows.size() / width),
          static_cast<Eigen::Index>(width)};
}

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

/// `a` has columns whose largest coefficient is 1 or 0. A coefficient whose gradient is above
/// `tolerance` may still lower the sum of squares.
Eigen::VectorXd lawson_hanson(const Eigen::MatrixXd& a,
                              const Eigen::VectorXd& b,
                              double tolerance) {
  const auto columns = static_cast<std::size_t>(a.cols());
  std::vector<char> free(columns, 0);
  Eigen::VectorXd x = Eigen::VectorXd::Zero(a.cols());
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

void EqualRows::add(double own_y, double own_weight) {
  ++count;
  y = own_y;
  weight = own_weight;
  const double inverse = own_weight / own_y;
  inverse_squares += inverse * inverse;
  products += inverse * own_weight;
  weight_squares += own_weight * own_weight;
}

RelativeRows::RelativeRows(std::size_t features) : width_(features + 1) {}

void RelativeRows::add(std::span<const double> row, double y, double weight) {
  for (const double feature : row) {
    rows_.push_back(weight * feature / y);
  }
  rows_.push_back(weight);
  if (rows_.size() >= kMostRows * width_) {
    reduce();
  }
}

void RelativeRows::add(std::span<const double> row, const EqualRows& equal) {
  if (equal.count < 2 || !(equal.inverse_squares > 0)) {
    add(row, equal.y, equal.weight);
    return;
  }
  // The R of the columns weight / y and weight.
  const double inverse = std::sqrt(equal.inverse_squares);
  const double along = equal.products / inverse;
  const double across = std::sqrt(std::max(0.0, equal.weight_squares - along * along));
  for (const double feature : row) {
    rows_.push_back(inverse * feature);
  }
  rows_.push_back(along);
  rows_.insert(rows_.end(), row.size(), 0.0);
  rows_.push_back(across);
  if (rows_.size() >= kMostRows * width_) {
    reduce();
  }
}

void RelativeRows::add(const RelativeRows& other) {
  is_reduced_ = is_reduced_ || other.is_reduced_;
  rows_.insert(rows_.end(), other.rows_.begin(), other.rows_.end());
  if (rows_.size() >= kMostRows * width_) {
    reduce();
  }
}

void RelativeRows::reduce() {
  if (rows_.size() <= width_ * width_) {
    return;
  }
  const auto width = static_cast<Eigen::Index>(width_);
  const Eigen::HouseholderQR<Eigen::MatrixXd> decomposition(row_major(rows_, width_));
  const RowMajor few =
      decomposition.matrixQR().topRows(width).triangularView<Eigen::Upper>().toDenseMatrix();
  rows_.assign(few.data(), few.data() + few.size());
  is_reduced_ = true;
}

std::vector<double> RelativeRows::solve(const std::vector<bool>& used) const {
  const auto width = static_cast<Eigen::Index>(width_);
  const auto rows = row_major(rows_, width_);
  Eigen::MatrixXd a = rows.leftCols(width - 1);
  const Eigen::VectorXd b = rows.col(width - 1);
  Eigen::VectorXd scale(width - 1);
  for (Eigen::Index j = 0; j < a.cols(); ++j) {
    if (!used.empty() && !used[static_cast<std::size_t>(j)]) {
      a.col(j).setZero();
    }
    const double largest = a.col(j).cwiseAbs().maxCoeff();
    scale(j) = largest > 0 ? largest : 1;
    a.col(j) /= scale(j);
  }
  constexpr double kTolerance = 1e-11;
  const double size = is_reduced_ ? b.norm() : static_cast<double>(a.rows());
  const Eigen::VectorXd x = lawson_hanson(a, b, kTolerance * size);
  std::vector<double> result;
  for (Eigen::Index j = 0; j < a.cols(); ++j) {
    result.push_back(x(j) / scale(j));
  }
  return result;
}

double RelativeRows::squares(const std::vector<double>& coefficients) const {
  double sum = 0;
  for (std::size_t i = 0; i < rows_.size(); i += width_) {
    const std::span row = std::span(rows_).subspan(i, width_);
    const double residual = dot(coefficients, row) - row.back();
    sum += residual * residual;
  }
  return sum;
}

std::vector<double> relative_nnls(const std::vector<std::vector<double>>& rows,
                                  const std::vector<double>& y,
                                  const std::vector<double>& weights) {
  if (rows.empty()) {
    return {};
  }
  RelativeRows all(rows.front().size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    all.add(rows[i], y[i], weights.empty() ? 1 : weights[i]);
  }
  return all.solve();
}

std::vector<double> relative_nnls(const DistinctRows& rows,
                                  const std::vector<double>& y,
                                  const std::vector<double>& weights) {
  if (rows.size() == 0) {
    return std::vector<double>(rows.features());
  }
  std::vector<EqualRows> equal(rows.distinct());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    equal[rows.number(i)].add(y[i], weights.empty() ? 1 : weights[i]);
  }
  RelativeRows all(rows.features());
  for (std::size_t number = 0; number < equal.size(); ++number) {
    all.add(rows.row(number), equal[number]);
  }
  return all.solve();
}

double dot(std::span<const double> coefficients, std::span<const double> row) {
  double sum = 0;
  for (std::size_t j = 0; j < coefficients.size(); ++j) {
    sum += coefficients[j] * row[j];
  }
  return sum;
}

std::vector<double> robust_excess(const DistinctRows& features, std::vector<double> times) {
  constexpr int kReweightings = 12;
  constexpr double kSmallest = 1e-3;  // Milliseconds: residuals below count alike.
  for (double& ms : times) {
    ms = std::max(ms, kSmallest);
  }
  std::vector<double> weights;
  std::vector<double> left(times.size());
  for (int round = 0; round < kReweightings; ++round) {
    // Weights of relative_nnls() are of relative residuals.
    const std::vector<double> fitted = features.times(relative_nnls(features, times, weights));
    weights.resize(times.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
      left[i] = times[i] - fitted[features.number(i)];
      weights[i] = times[i] / std::sqrt(std::max(std::abs(left[i]), kSmallest));
    }
  }
  return left;
}

}  // namespace stepsim
