#include "sim/batching/algorithms/sparse_nnls.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <Eigen/Cholesky>
#include <Eigen/Jacobi>

namespace stepsim {
namespace {

using Column = Eigen::SparseMatrix<double>::InnerIterator;
using Eigen::Index;
using Eigen::VectorXd;

/// The columns in use, their coefficients, and the factor L of their inner products L L'.
class ActiveColumns {
 public:
  ActiveColumns(const Eigen::SparseMatrix<double>& a, const VectorXd& b)
      : a_(a), residual_(b), factor_(a.rows(), a.rows()) {}

  [[nodiscard]] const VectorXd& residual() const { return residual_; }

  [[nodiscard]] auto lower(Index size) const {
    return factor_.topLeftCorner(size, size).triangularView<Eigen::Lower>();
  }

  /// False, and nothing done, when rounding leaves nothing of the column beside the others.
  bool add(Index column) {
    const Index size = std::ssize(columns_);
    if (size == a_.rows()) {
      return false;
    }
    const VectorXd entries = a_.col(column);
    VectorXd row = products(entries);
    lower(size).solveInPlace(row);
    const double whole = entries.squaredNorm();
    const double left = whole - row.squaredNorm();
    if (left <= 1e-10 * whole) {
      return false;
    }
    factor_.row(size).head(size) = row.transpose();
    factor_(size, size) = std::sqrt(left);
    columns_.push_back(column);
    x_.conservativeResize(size + 1);
    x_(size) = 0;
    return true;
  }

  /// Goes towards the least squares solution of these columns. Columns whose coefficients reach 0
  /// leave first, and then the rest goes on.
  void settle() {
    while (!columns_.empty()) {
      const Index size = std::ssize(columns_);
      VectorXd change = products(residual_);
      lower(size).solveInPlace(change);
      lower(size).adjoint().solveInPlace(change);
      double share = 1;
      Index first = -1;
      for (Index i = 0; i < size; ++i) {
        if (x_(i) + change(i) <= 0 && x_(i) <= -change(i) * share) {
          share = change(i) < 0 ? x_(i) / -change(i) : 0;
          first = i;
        }
      }
      change *= share;
      x_ += change;
      for (Index i = 0; i < size; ++i) {
        for (Column entry(a_, columns_[static_cast<std::size_t>(i)]); entry; ++entry) {
          residual_(entry.row()) -= change(i) * entry.value();
        }
      }
      if (first < 0) {
        return;
      }
      remove(first);
    }
  }

  [[nodiscard]] VectorXd solution() const {
    VectorXd x = VectorXd::Zero(a_.cols());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      x(columns_[i]) = x_(static_cast<Index>(i));
    }
    return x;
  }

 private:
  [[nodiscard]] VectorXd products(const VectorXd& vector) const {
    VectorXd result = VectorXd::Zero(std::ssize(columns_));
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      for (Column entry(a_, columns_[i]); entry; ++entry) {
        result(static_cast<Index>(i)) += entry.value() * vector(entry.row());
      }
    }
    return result;
  }

  /// Closes the gap in the factor's rows; each row then has one entry too many, which a rotation of
  /// two columns takes away.
  void remove(Index gone) {
    const Index size = std::ssize(columns_);
    for (Index row = gone; row + 1 < size; ++row) {
      factor_.row(row).head(row + 2) = factor_.row(row + 1).head(row + 2);
      x_(row) = x_(row + 1);
    }
    for (Index i = gone; i + 1 < size; ++i) {
      Eigen::JacobiRotation<double> rotation;
      rotation.makeGivens(factor_(i, i), factor_(i, i + 1));
      auto below = factor_.block(i, 0, size - 1 - i, size);
      below.applyOnTheRight(i, i + 1, rotation);
    }
    x_.conservativeResize(size - 1);
    columns_.erase(columns_.begin() + gone);
  }

  const Eigen::SparseMatrix<double>& a_;
  VectorXd residual_;
  Eigen::MatrixXd factor_;  ///< Its lower left corner.
  std::vector<Index> columns_;
  VectorXd x_;  ///< The coefficients, in the order of columns_.
};

}  // namespace

Eigen::VectorXd sparse_nnls(const Eigen::SparseMatrix<double>& a,
                            const Eigen::VectorXd& b,
                            double tolerance) {
  const Eigen::Index count = a.cols();
  VectorXd norms(count);
  for (Index j = 0; j < count; ++j) {
    norms(j) = a.col(j).norm();
  }
  ActiveColumns active(a, b);
  std::vector<char> refused(static_cast<std::size_t>(count), 0);
  // Each round lets one column in; three times the columns is the customary bound on cycling.
  for (Index round = 0; round < 3 * count; ++round) {
    const VectorXd gradient = a.transpose() * active.residual();
    Index best = -1;
    double steepest = tolerance;
    for (Index j = 0; j < count; ++j) {
      if (gradient(j) > steepest * norms(j) && refused[static_cast<std::size_t>(j)] == 0) {
        steepest = gradient(j) / norms(j);
        best = j;
      }
    }
    if (best < 0) {
      break;
    }
    if (!active.add(best)) {
      refused[static_cast<std::size_t>(best)] = 1;
      continue;
    }
    const double before = active.residual().squaredNorm();
    active.settle();
    if (active.residual().squaredNorm() < before) {
      std::ranges::fill(refused, 0);
    } else {
      refused[static_cast<std::size_t>(best)] = 1;
    }
  }
  return active.solution();
}

}  // namespace stepsim
