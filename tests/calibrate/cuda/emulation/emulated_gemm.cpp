// gemm.h on host memory: naive loops, sums in double precision (TF32 operands are not rounded).
#include <cmath>
#include <utility>
#include <vector>

#include "calibrate/cuda/kernels/gemm.h"
#include "tests/calibrate/cuda/emulation/clock.h"
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

/// gelu(x) by its tanh form, and its slope.
std::pair<double, double> gelu(double x) {
  const double root = std::sqrt(2 / 3.14159265358979323846);
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  const double du = root * (1 + 3 * 0.044715 * x * x);
  return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du};
}

/// What the epilogue makes of element `at` of C.
double finished(const GemmCall& call, std::int64_t at, double sum) {
  if (call.epilogue == GemmEpilogue::BiasGelu) {
    store(call.aux, at, sum);
    return gelu(sum).first;
  }
  return call.epilogue == GemmEpilogue::GeluGradient ? sum * gelu(load(call.aux, at)).second : sum;
}

/// The sums that the epilogue writes beside the product.
void write_sums(const GemmCall& call, const std::vector<double>& a, const std::vector<double>& b) {
  const bool of_a = call.epilogue == GemmEpilogue::SumsOfA;
  if (!of_a && call.epilogue != GemmEpilogue::SumsOfB) {
    return;
  }
  for (std::int64_t i = 0; i < (of_a ? call.m : call.n); ++i) {
    double sum = 0;
    for (std::int64_t k = 0; k < call.k; ++k) {
      sum += of_a ? a[static_cast<std::size_t>(i * call.k + k)]
                  : b[static_cast<std::size_t>(k * call.n + i)];
    }
    store(call.bias, i, sum);
  }
}

void multiply(const GemmCall& call, ConstArray a_array, ConstArray b_array, Array c) {
  const bool adds_bias =
      call.epilogue == GemmEpilogue::Bias || call.epilogue == GemmEpilogue::BiasGelu;
  const auto a = operand(a_array, call.lda, call.transpose_a, call.m, call.k);
  const auto b = operand(b_array, call.ldb, call.transpose_b, call.k, call.n);
  std::vector<double> sums(static_cast<std::size_t>(call.n));
  for (std::int64_t row = 0; row < call.m; ++row) {
    for (std::int64_t column = 0; column < call.n; ++column) {
      const double old = call.beta == 0 ? 0.0 : call.beta * load(c, row * call.ldc + column);
      sums[static_cast<std::size_t>(column)] = old + (adds_bias ? load(call.bias, column) : 0.0);
    }
    for (std::int64_t inner = 0; inner < call.k; ++inner) {
      const double factor = a[static_cast<std::size_t>(row * call.k + inner)];
      const double* const b_row = b.data() + inner * call.n;
      for (std::int64_t column = 0; column < call.n; ++column) {
        sums[static_cast<std::size_t>(column)] += factor * b_row[column];
      }
    }
    for (std::int64_t column = 0; column < call.n; ++column) {
      const std::int64_t at = row * call.ldc + column;
      store(c, at, finished(call, at, sums[static_cast<std::size_t>(column)]));
    }
  }
  write_sums(call, a, b);
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
  const bool has_gelu =
      call.epilogue == GemmEpilogue::BiasGelu || call.epilogue == GemmEpilogue::GeluGradient;
  emulated::napped += emulated::product_nanoseconds + (has_gelu ? emulated::gelu_nanoseconds : 0);
  emulated::product_flops += 2 * call.m * call.n * call.k * call.batch;
  emulated::product_results += call.m * call.n * call.batch;
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
