#pragma once

#include <Eigen/SparseCore>

namespace stepsim {

/// x >= 0 that minimises |A x - b|: non-negative least squares for matrices of many columns with
/// few entries each.
///
/// Args:
///     a: No column may be zero.
///     b: [row]
///     tolerance: Ends when no unit column has a larger inner product with the residual, >= 0.
/// Returns: [column]; at most as many entries above 0 as rows.
/// Method: the active sets of Lawson and Hanson, "Solving Least Squares Problems" (1974), chapter
/// 23, with the Cholesky factor of the active columns' inner products carried along: O(rows^2) a
/// column that enters or leaves.
[[nodiscard]] Eigen::VectorXd sparse_nnls(const Eigen::SparseMatrix<double>& a,
                                          const Eigen::VectorXd& b,
                                          double tolerance);

}  // namespace stepsim
