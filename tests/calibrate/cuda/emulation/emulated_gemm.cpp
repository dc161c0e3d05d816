// gemm.h on host memory: naive loops, sums in double precision (TF32 operands are not rounded).
#include <vector>

#include "calibrate/cuda/kernels/gemm.h"
#include "tests/calibrate/cuda/emulation/device_limits.h"
#include "tests/calibrate/cuda/host_array.h"

namespace stepsim::cuda {
namespace {

/// op(X) as a dense row-major matrix; X lies in memory as rows x columns, or as its transpose.
std::vector<double> operand(
    ConstArray x, std::int64_t leading, bool transpose, std::int64_t rows, std::int64_t columns) {
  std::vector<double> dense(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      dense[static_cast<std::size_t>(row * columns + column)] =
          load(x, transpose ? column * leading + row : row * leading + column);
    }
  }
  return dense;
}

void multiply(const GemmCall& call, ConstArray a_array, ConstArray b_array, Array c) {
  const auto a = operand(a_array, call.lda, call.transpose_a, call.m, call.k);
  const auto b = operand(b_array, call.ldb, call.transpose_b, call.k, call.n);
  std::vector<double> sums(static_cast<std::size_t>(call.n));
  for (std::int64_t row = 0; row < call.m; ++row) {
    for (std::int64_t column = 0; column < call.n; ++column) {
      const double old = call.beta == 0 ? 0.0 : call.beta * load(c, row * call.ldc + column);
      sums[static_cast<std::size_t>(column)] =
          old + (call.bias.data == nullptr ? 0.0 : load(call.bias, column));
    }
    for (std::int64_t inner = 0; inner < call.k; ++inner) {
      const double factor = a[static_cast<std::size_t>(row * call.k + inner)];
      const double* const b_row = b.data() + inner * call.n;
      for (std::int64_t column = 0; column < call.n; ++column) {
        sums[static_cast<std::size_t>(column)] += factor * b_row[column];
      }
    }
    for (std::int64_t column = 0; column < call.n; ++column) {
      store(c, row * call.ldc + column, sums[static_cast<std::size_t>(column)]);
    }
  }
}

}  // namespace

struct Gemm::State {
  GemmRoute route;
};

Gemm::Gemm(GemmRoute route) : state_(std::make_unique<State>(State{route})) {}
Gemm::~Gemm() = default;

std::int64_t Gemm::cublaslt_workspace_bytes() const {
  return 0;
}
std::int64_t Gemm::cublas_workspace_bytes() const {
  return 0;
}

void Gemm::run(const Stream& /*stream*/, const GemmCall& call) {
  ++(by_cublaslt(state_->route, call) ? emulated::cublaslt_products : emulated::cublas_products);
  for (std::int64_t i = 0; i < call.batch; ++i) {
    multiply(call,
             call.a.at(i * call.stride_a),
             call.b.at(i * call.stride_b),
             call.c.at(i * call.stride_c));
  }
}

std::string cublas_version() {
  return "emulated";
}

}  // namespace stepsim::cuda
