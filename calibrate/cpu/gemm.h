#pragma once

#include <cstdint>

namespace stepsim::cpu {

/// A row-major matrix in somebody's memory: element (i, j) is data[i * stride + j].
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

enum class Store { Assign, Add };

/// C (=|+=) alpha A B, A [m, k], B [k, n]. C must not overlap A or B.
void gemm_nn(Matrix c, ConstMatrix a, ConstMatrix b, float alpha, Store store);

/// C (=|+=) alpha A B^T, A [m, k], B [n, k].
void gemm_nt(Matrix c, ConstMatrix a, ConstMatrix b, float alpha, Store store);

/// C (=|+=) alpha A^T B, A [k, m], B [k, n].
void gemm_tn(Matrix c, ConstMatrix a, ConstMatrix b, float alpha, Store store);

}  // namespace stepsim::cpu
