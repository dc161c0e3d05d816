#include "calibrate/cuda/kernels/gemm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/gpu/checks.h"

using namespace stepsim;
using namespace stepsim::cuda;
using test::DeviceArray;
using test::stream;

namespace {

struct Dtypes {
  Dtype operands;  ///< Tf32: F32 arrays through TF32 tensor cores.
  Dtype result;
};

std::int64_t rows_of_a(const GemmCall& call) {
  return call.transpose_a ? call.k : call.m;
}

std::int64_t rows_of_b(const GemmCall& call) {
  return call.transpose_b ? call.n : call.k;
}

/// `gap` unused elements after every row, and 3 gaps after every product of the batch.
GemmCall with_gaps(GemmCall call, int gap) {
  call.lda = (call.transpose_a ? call.m : call.k) + gap;
  call.ldb = (call.transpose_b ? call.k : call.n) + gap;
  call.ldc = call.n + gap;
  call.stride_a = rows_of_a(call) * call.lda + 3 * gap;
  call.stride_b = rows_of_b(call) * call.ldb + 3 * gap;
  call.stride_c = call.m * call.ldc + 3 * gap;
  return call;
}

/// A product and its operands on the device.
struct Problem {
  Problem(const GemmCall& shape, Dtypes types)
      : dtypes(types),
        call(shape),
        a(stored(types.operands), test::numbers(call.batch * call.stride_a + call.lda, 1)),
        b(stored(types.operands), test::numbers(call.batch * call.stride_b + call.ldb, 2)),
        c(types.result, test::numbers(call.batch * call.stride_c + call.ldc, 3)),
        bias(types.result, test::numbers(call.n, 4)) {
    call.tf32 = types.operands == Dtype::Tf32;
    call.a = a.array();
    call.b = b.array();
    call.c = c.array();
  }

  static Dtype stored(Dtype dtype) { return dtype == Dtype::Tf32 ? Dtype::F32 : dtype; }

  Dtypes dtypes;
  GemmCall call;
  DeviceArray a, b, c, bias;
};

/// Element (row, column) of a product, and the sum of its terms' magnitudes.
struct Element {
  double value = 0;
  double size = 0;
  void add(double term) {
    value += term;
    size += std::abs(term);
  }
};

Element product_at(const Problem& problem, std::int64_t i, std::int64_t row, std::int64_t column) {
  const GemmCall& call = problem.call;
  Element element;
  for (std::int64_t k = 0; k < call.k; ++k) {
    const std::int64_t a = call.transpose_a ? k * call.lda + row : row * call.lda + k;
    const std::int64_t b = call.transpose_b ? column * call.ldb + k : k * call.ldb + column;
    element.add(problem.a[i * call.stride_a + a] * problem.b[i * call.stride_b + b]);
  }
  if (call.beta != 0) {
    element.add(call.beta * problem.c[i * call.stride_c + row * call.ldc + column]);
  }
  if (call.epilogue == GemmEpilogue::Bias || call.epilogue == GemmEpilogue::BiasGelu) {
    element.add(problem.bias[column]);
  }
  return element;
}

/// Of the sum of magnitudes: one rounding of each operand to TF32 (or a truncation, twice that),
/// one of each addition in fp32, two of the result (a kernel may round before it adds C).
double bound(const Problem& problem, const Element& element) {
  constexpr double kTruncatedToTf32 = 0x1p-10;
  const double operands = problem.call.tf32 ? 2 * kTruncatedToTf32 : 0.0;
  const double sums = static_cast<double>(problem.call.k + 2) * test::kRoundoff32;
  return (operands + sums + 2 * test::unit_roundoff(problem.dtypes.result)) * element.size;
}

void check(Gemm& gemm, const Problem& problem) {
  const GemmCall& call = problem.call;
  gemm.run(stream(), call);
  std::vector<double> result = problem.c.read();
  double worst = 0;  // In bounds.
  for (std::int64_t i = 0; i < call.batch; ++i) {
    for (std::int64_t row = 0; row < call.m; ++row) {
      for (std::int64_t column = 0; column < call.n; ++column) {
        const std::int64_t at = i * call.stride_c + row * call.ldc + column;
        const Element expected = product_at(problem, i, row, column);
        double& value = result[static_cast<std::size_t>(at)];
        const double apart = std::abs(value - expected.value) / bound(problem, expected);
        worst = std::isnan(apart) ? INFINITY : std::max(worst, apart);
        value = problem.c[at];
      }
    }
  }
  CHECK(worst <= 1);
  CHECK(result == problem.c.values());  // Nothing between the rows was touched.
}

constexpr Dtypes kDtypes[] = {{Dtype::F32, Dtype::F32},
                              {Dtype::Tf32, Dtype::F32},
                              {Dtype::Bf16, Dtype::Bf16},
                              {Dtype::Bf16, Dtype::F32},
                              {Dtype::F16, Dtype::F16},
                              {Dtype::F16, Dtype::F32}};

}  // namespace

namespace {

/// Whether a product that the library refuses, and does not compute wrongly, fails the test.
enum class Refusal { Fails, Passes };

/// Every dtype, layout and epilogue of one size. Each is tried, whatever became of the one before.
void check_size_by(GemmRoute route, const std::array<std::int64_t, 3>& size, Refusal refusal) {
  Gemm gemm(route);
  for (const Dtypes dtypes : kDtypes) {
    for (int layout = 0; layout < 4; ++layout) {
      for (int option = 0; option < 4; ++option) {
        GemmCall call;
        call.m = size[0];
        call.n = size[1];
        call.k = size[2];
        call.transpose_a = layout % 2 == 1;
        call.transpose_b = layout / 2 == 1;
        call.beta = option % 2 == 1 ? 1.0F : 0.0F;
        call.batch = option == 3 ? 3 : 1;
        Problem problem(with_gaps(call, option == 0 ? 0 : 8), dtypes);
        if (option == 2) {
          problem.call.epilogue = GemmEpilogue::Bias;
          problem.call.bias = problem.bias.array();
        }
        CAPTURE(name_of(dtypes.operands));
        CAPTURE(name_of(dtypes.result));
        CAPTURE(layout);
        CAPTURE(option);
        try {
          check(gemm, problem);
        } catch (const EnvironmentFault& fault) {
          MESSAGE(fault.what());
          CHECK(refusal == Refusal::Passes);
        }
      }
    }
  }
}

void check_size(const std::array<std::int64_t, 3>& size, Refusal refusal) {
  for (const GemmRoute route : {GemmRoute::Lt, GemmRoute::Torch}) {
    CAPTURE(route == GemmRoute::Torch);
    check_size_by(route, size, refusal);
  }
}

}  // namespace

TEST_CASE("library: products of plain sizes in every dtype, layout and epilogue") {
  check_size({40, 24, 56}, Refusal::Fails);
  check_size({130, 72, 256}, Refusal::Fails);
}

namespace {

/// gelu(x) by its tanh form, and its slope.
std::pair<double, double> gelu(double x) {
  const double root = std::sqrt(2 / 3.14159265358979323846);
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  const double du = root * (1 + 3 * 0.044715 * x * x);
  return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du};
}

/// A hyperbolic tangent of the hardware, which kernels may take.
constexpr double kOfTanh = 0x1p-10;

/// The product of a forward with bias and GELU: what goes to aux, and its GELU.
void check_bias_gelu(Gemm& gemm, Problem& problem) {
  const GemmCall& call = problem.call;
  const DeviceArray aux(problem.dtypes.result, call.m * call.n);
  problem.call.epilogue = GemmEpilogue::BiasGelu;
  problem.call.bias = problem.bias.array();
  problem.call.aux = aux.array();
  gemm.run(stream(), call);
  const std::vector<double> kept = aux.read();
  const std::vector<double> result = problem.c.read();
  double worst = 0;
  for (std::int64_t at = 0; at < call.m * call.n; ++at) {
    const Element sum = product_at(problem, 0, at / call.n, at % call.n);
    const double most = bound(problem, sum);
    const auto [value, slope] = gelu(sum.value);
    // The slope of a GELU is 1.13 at most.
    const double of_gelu = 1.13 * most + kOfTanh * std::abs(sum.value) +
                           2 * test::unit_roundoff(problem.dtypes.result) * std::abs(value);
    const auto i = static_cast<std::size_t>(at);
    worst = std::max(
        {worst, std::abs(kept[i] - sum.value) / most, std::abs(result[i] - value) / of_gelu});
  }
  CHECK(worst <= 1);
}

void check_gelu_gradient(Gemm& gemm, Problem& problem) {
  const GemmCall& call = problem.call;
  const DeviceArray aux(problem.dtypes.result, test::numbers(call.m * call.n, 5, 2));
  problem.call.epilogue = GemmEpilogue::GeluGradient;
  problem.call.aux = aux.array();
  gemm.run(stream(), call);
  const std::vector<double> result = problem.c.read();
  double worst = 0;
  for (std::int64_t at = 0; at < call.m * call.n; ++at) {
    const Element sum = product_at(problem, 0, at / call.n, at % call.n);
    const double slope = gelu(aux[at]).second;
    const double most = 1.13 * bound(problem, sum) + 8 * kOfTanh * std::abs(sum.value);
    worst =
        std::max(worst, std::abs(result[static_cast<std::size_t>(at)] - sum.value * slope) / most);
  }
  CHECK(worst <= 1);
}

/// The sums of op(A)'s rows or op(B)'s columns beside the product.
void check_sums(Gemm& gemm, Problem& problem, GemmEpilogue epilogue) {
  const GemmCall& call = problem.call;
  const bool of_a = epilogue == GemmEpilogue::SumsOfA;
  const DeviceArray sums(problem.dtypes.result, of_a ? call.m : call.n);
  problem.call.epilogue = epilogue;
  problem.call.bias = sums.array();
  check(gemm, problem);
  const std::vector<double> result = sums.read();
  double worst = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(result.size()); ++i) {
    Element sum;
    for (std::int64_t k = 0; k < call.k; ++k) {
      const bool turned = of_a ? call.transpose_a : !call.transpose_b;
      const std::int64_t leading = of_a ? call.lda : call.ldb;
      const std::int64_t at = turned ? k * leading + i : i * leading + k;
      sum.add(of_a ? problem.a[at] : problem.b[at]);
    }
    worst = std::max(
        worst, std::abs(result[static_cast<std::size_t>(i)] - sum.value) / bound(problem, sum));
  }
  CHECK(worst <= 1);
}

}  // namespace

// The layouts are those of a linear layer whose weights lie as [out][in].
TEST_CASE("library: a GELU, its gradient and sums beside a product") {
  Gemm gemm(GemmRoute::Lt);
  for (const Dtype dtype : {Dtype::F32, Dtype::Bf16, Dtype::F16}) {
    CAPTURE(name_of(dtype));
    GemmCall call;
    call.m = 40;
    call.n = 24;
    call.k = 56;
    call.transpose_b = true;
    Problem forward(with_gaps(call, 0), {dtype, dtype});
    check_bias_gelu(gemm, forward);
    call.transpose_b = false;
    Problem backward(with_gaps(call, 0), {dtype, dtype});
    check_gelu_gradient(gemm, backward);
    call.transpose_a = true;
    for (const GemmEpilogue epilogue : {GemmEpilogue::SumsOfA, GemmEpilogue::SumsOfB}) {
      Problem weights(with_gaps(call, 0), {dtype, dtype});
      check_sums(gemm, weights, epilogue);
    }
  }
}

TEST_CASE("library: products of odd sizes") {
  check_size({33, 17, 65}, Refusal::Passes);
}

TEST_CASE("library: products of a single row, which cuBLASLt may refuse") {
  check_size({1, 8, 16}, Refusal::Passes);
}

TEST_CASE("library: what a beta of 0 overwrites is not read") {
  for (const GemmRoute route : {GemmRoute::Lt, GemmRoute::Torch}) {
    Gemm gemm(route);
    GemmCall call;
    call.m = call.n = call.k = 16;
    Problem problem(with_gaps(call, 0), {Dtype::F32, Dtype::F32});
    const DeviceArray nothing(Dtype::F32, 16 * 16);  // Not-a-number.
    problem.call.c = nothing.array();
    gemm.run(stream(), problem.call);
    for (const double value : nothing.read()) {
      CHECK(std::isfinite(value));
    }
  }
}
