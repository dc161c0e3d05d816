#include "calibrate/cuda/kernels/gemm_layout.h"

#include <vector>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/torch_workspace.h"

using namespace stepsim;
using namespace stepsim::cuda;

namespace {

std::int64_t extent(const ColumnMajorMatrix& matrix, std::int64_t batch) {
  return matrix.leading * matrix.columns + (batch - 1) * matrix.stride;
}

/// Small integers: every product and sum is exact.
std::vector<double> integers(std::int64_t count, int seed) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>((i * 7 + seed) % 11 - 5));
  }
  return values;
}

/// What the library does with these descriptors: D = op(A) op(B) + beta D, column-major.
void column_major_product(const ColumnMajorGemm& shape,
                          const std::vector<double>& a,
                          const std::vector<double>& b,
                          std::vector<double>& d,
                          double beta,
                          std::int64_t batch) {
  const auto element = [](const ColumnMajorMatrix& matrix,
                          const std::vector<double>& values,
                          std::int64_t i,
                          std::int64_t row,
                          std::int64_t column) {
    REQUIRE(row < matrix.rows);
    REQUIRE(column < matrix.columns);
    return values[i * matrix.stride + column * matrix.leading + row];
  };
  for (std::int64_t i = 0; i < batch; ++i) {
    for (std::int64_t row = 0; row < shape.m; ++row) {
      for (std::int64_t column = 0; column < shape.n; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < shape.k; ++k) {
          sum += (shape.transpose_a ? element(shape.a, a, i, k, row)
                                    : element(shape.a, a, i, row, k)) *
                 (shape.transpose_b ? element(shape.b, b, i, column, k)
                                    : element(shape.b, b, i, k, column));
        }
        double& result = d[i * shape.d.stride + column * shape.d.leading + row];
        result = sum + beta * result;
      }
    }
  }
}

/// The call's own row-major definition.
void row_major_product(const GemmCall& call,
                       const std::vector<double>& a,
                       const std::vector<double>& b,
                       std::vector<double>& c) {
  for (std::int64_t i = 0; i < call.batch; ++i) {
    for (std::int64_t row = 0; row < call.m; ++row) {
      for (std::int64_t column = 0; column < call.n; ++column) {
        double& result = c[i * call.stride_c + row * call.ldc + column];
        double sum = call.beta * result;
        for (std::int64_t k = 0; k < call.k; ++k) {
          const std::int64_t at_a = call.transpose_a ? k * call.lda + row : row * call.lda + k;
          const std::int64_t at_b =
              call.transpose_b ? column * call.ldb + k : k * call.ldb + column;
          sum += a[i * call.stride_a + at_a] * b[i * call.stride_b + at_b];
        }
        result = sum;
      }
    }
  }
}

}  // namespace

TEST_CASE("the column-major product is the row-major one in every layout") {
  for (int options = 0; options < 16; ++options) {
    GemmCall call;
    call.m = 5;
    call.n = 3;
    call.k = 7;
    call.transpose_a = (options & 1) != 0;
    call.transpose_b = (options & 2) != 0;
    call.beta = (options & 4) != 0 ? 1.0F : 0.0F;
    call.batch = (options & 8) != 0 ? 2 : 1;
    call.lda = (call.transpose_a ? call.m : call.k) + 2;
    call.ldb = (call.transpose_b ? call.k : call.n) + 1;
    call.ldc = call.n + 4;
    call.stride_a = 101;
    call.stride_b = 89;
    call.stride_c = 67;
    CAPTURE(options);
    const ColumnMajorGemm shape = column_major(call);
    const std::vector<double> a = integers(extent(shape.b, call.batch), 3);
    const std::vector<double> b = integers(extent(shape.a, call.batch), 8);
    std::vector<double> expected = integers(extent(shape.d, call.batch), 1);
    std::vector<double> result = expected;
    row_major_product(call, a, b, expected);
    column_major_product(shape, b, a, result, call.beta, call.batch);
    CHECK(result == expected);
  }
}

TEST_CASE("a linear layer's three products are those of cuBLASLt's usual table") {
  // Y (M x N) = X (M x K) W^T (N x K), dX = dY W, dW = dY^T X; M = 4, N = 6, K = 8.
  GemmCall forward;
  forward.m = 4;
  forward.n = 6;
  forward.k = 8;
  forward.transpose_b = true;
  forward.lda = 8;
  forward.ldb = 8;
  forward.ldc = 6;
  const ColumnMajorGemm y = column_major(forward);
  CHECK(y.m == 6);
  CHECK(y.n == 4);
  CHECK(y.k == 8);
  CHECK(y.transpose_a);
  CHECK_FALSE(y.transpose_b);
  CHECK(y.a.rows == 8);
  CHECK(y.a.columns == 6);
  CHECK(y.b.rows == 8);
  CHECK(y.b.columns == 4);
  CHECK(y.d.rows == 6);
  CHECK(y.d.columns == 4);

  GemmCall weights;
  weights.m = 6;
  weights.n = 8;
  weights.k = 4;
  weights.transpose_a = true;
  weights.lda = 6;
  weights.ldb = 8;
  weights.ldc = 8;
  const ColumnMajorGemm dw = column_major(weights);
  CHECK(dw.m == 8);
  CHECK(dw.n == 6);
  CHECK(dw.k == 4);
  CHECK_FALSE(dw.transpose_a);
  CHECK(dw.transpose_b);
  CHECK(dw.a.rows == 8);
  CHECK(dw.a.columns == 4);
  CHECK(dw.b.rows == 6);
  CHECK(dw.b.columns == 4);
}

TEST_CASE("PyTorch's route takes cuBLASLt for the bias alone") {
  GemmCall plain;
  GemmCall with_bias;
  with_bias.epilogue = GemmEpilogue::Bias;
  CHECK(by_cublaslt(GemmRoute::Lt, plain));
  CHECK(by_cublaslt(GemmRoute::Lt, with_bias));
  CHECK_FALSE(by_cublaslt(GemmRoute::Torch, plain));
  CHECK(by_cublaslt(GemmRoute::Torch, with_bias));
}

TEST_CASE("the libraries' workspaces are PyTorch's, with its variables") {
  CHECK(torch_cublas_workspace(8, 0, nullptr) == 8519680);  // What its allocator shows on Ampere.
  CHECK(torch_cublas_workspace(9, 0, nullptr) == std::int64_t{32} << 20);
  CHECK(torch_cublas_workspace(10, 0, nullptr) == 8519680);
  CHECK(torch_cublas_workspace(9, 0, ":4096:2:16:8") == 8519680);
  CHECK(torch_cublas_workspace(8, 0, ":16:8") == 128 << 10);
  CHECK(torch_cublas_workspace(8, 0, ":0:0") == 0);
  for (const char* const config : {"", "4096", ":4096", ":x:2", ":4096:-1"}) {
    CAPTURE(config);
    CHECK(torch_cublas_workspace(8, 0, config) == 8519680);
  }
  constexpr std::int64_t kCublas = std::int64_t{32} << 20;
  CHECK(torch_cublaslt_workspace(nullptr, kCublas) == 1 << 20);
  CHECK(torch_cublaslt_workspace("many", kCublas) == 1 << 20);
  CHECK(torch_cublaslt_workspace("4096", kCublas) == 4 << 20);
  CHECK(torch_cublaslt_workspace("65536", kCublas) == kCublas);
  CHECK(torch_cublaslt_workspace("0", kCublas) == 0);
}
