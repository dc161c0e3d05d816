#pragma once

#include "calibrate/cuda/kernels/gemm.h"

namespace stepsim::cuda {

/// A matrix in memory as column-major libraries see it, without its pointer.
struct ColumnMajorMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading = 0;  ///< Elements from a column to the next.
  std::int64_t stride = 0;   ///< Elements from a product of the batch to the next.
};

/// D = op(A) op(B), all column-major; D is m x n.
///
/// A row-major R x C matrix is a column-major C x R one with the same leading dimension. So D is
/// the transpose of the call's C, and D = C^T = op(b)^T op(a)^T: the library's A is the call's b
/// and its B is the call's a, each transposed exactly when the call says so.
struct ColumnMajorGemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  ColumnMajorMatrix a;  ///< The call's b.
  ColumnMajorMatrix b;  ///< The call's a.
  ColumnMajorMatrix d;  ///< The call's c.
};

[[nodiscard]] inline ColumnMajorGemm column_major(const GemmCall& call) {
  ColumnMajorGemm product;
  product.m = call.n;
  product.n = call.m;
  product.k = call.k;
  product.transpose_a = call.transpose_b;
  product.transpose_b = call.transpose_a;
  product.a = {call.transpose_b ? call.k : call.n,
               call.transpose_b ? call.n : call.k,
               call.ldb,
               call.stride_b};
  product.b = {call.transpose_a ? call.m : call.k,
               call.transpose_a ? call.k : call.m,
               call.lda,
               call.stride_a};
  product.d = {call.n, call.m, call.ldc, call.stride_c};
  return product;
}

}  // namespace stepsim::cuda
