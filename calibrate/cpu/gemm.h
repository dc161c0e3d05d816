#pragma once

#include <cstdint>

#include "calibrate/cpu/device.h"
#include "calibrate/training/kernel_arguments.h"

namespace stepsim::cpu {

/// A row-major matrix that lies in memory of someone else: element (i, j) is data[i * stride + j].
struct ConstMatrix {
  const float* data;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;
};

struct Matrix {
  float* data;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;
};

/// C (=|+=) alpha A B, A [m, k], B [k, n]. C must not overlap A or B.
void gemm_nn(Matrix c, ConstMatrix a, ConstMatrix b, float alpha, Store store);

/// C (=|+=) alpha A B^T, A [m, k], B [n, k].
void gemm_nt(Matrix c, ConstMatrix a, ConstMatrix b, float alpha, Store store);

/// C (=|+=) alpha A^T B, A [k, m], B [k, n].
void gemm_tn(Matrix c, ConstMatrix a, ConstMatrix b, float alpha, Store store);

/// C = op(A) op(B) + beta C (+ bias on every row), all row-major; C is m x n, op(A) m x k, op(B)
/// k x n. A transposed operand lies in memory as the transpose. Leading dimensions are elements
/// from a row in memory to the next. At most one operand is transposed.
struct GemmCall {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  float beta = 0;               ///< 0 or 1.
  const float* bias = nullptr;  ///< [n], or null; only with beta 0.
};

/// The matrix products of linear layers.
struct Gemm {
  static void run(const Stream& stream, const GemmCall& call);
};

}  // namespace stepsim::cpu
