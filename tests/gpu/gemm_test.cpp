#include "calibrate/cuda/gemm.h"

#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include "tests/gpu/device_array.h"

using namespace stepsim;
using namespace stepsim::cuda;

namespace {

struct Dtypes {
  Dtype operands;  ///< Tf32: F32 arrays through TF32 tensor cores.
  Dtype result;
};

std::vector<double> random_values(std::int64_t count, Dtype dtype, std::mt19937_64& random) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::vector<std::byte> one(8);
  for (double& value : values) {
    store({one.data(), dtype}, 0, static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
    value = load({one.data(), dtype}, 0);
  }
  return values;
}

/// A product with its operands on the host.
struct Problem {
  GemmCall call;
  std::vector<double> a, b, c, bias;
};

std::int64_t extent(std::int64_t rows, std::int64_t leading, std::int64_t stride, std::int64_t n) {
  return rows * leading + (n - 1) * stride;
}

/// `gap` unused elements after every row and 3 after every product of the batch.
Problem make_problem(
    std::int64_t m, std::int64_t n, std::int64_t k, GemmCall options, Dtypes dtypes, int gap) {
  Problem problem{std::move(options), {}, {}, {}, {}};
  GemmCall& call = problem.call;
  call.m = m;
  call.n = n;
  call.k = k;
  call.tf32 = dtypes.operands == Dtype::Tf32;
  const std::int64_t a_rows = call.transpose_a ? k : m;
  const std::int64_t b_rows = call.transpose_b ? n : k;
  call.lda = (call.transpose_a ? m : k) + gap;
  call.ldb = (call.transpose_b ? k : n) + gap;
  call.ldc = n + gap;
  call.stride_a = a_rows * call.lda + 3 * gap;
  call.stride_b = b_rows * call.ldb + 3 * gap;
  call.stride_c = m * call.ldc + 3 * gap;
  std::mt19937_64 random(17);
  const Dtype operands = dtypes.operands == Dtype::Tf32 ? Dtype::F32 : dtypes.operands;
  problem.a = random_values(extent(a_rows, call.lda, call.stride_a, call.batch), operands, random);
  problem.b = random_values(extent(b_rows, call.ldb, call.stride_b, call.batch), operands, random);
  problem.c = random_values(extent(m, call.ldc, call.stride_c, call.batch), dtypes.result, random);
  problem.bias = random_values(n, dtypes.result, random);
  return problem;
}

/// Element (row, column) of a product, and the sum of its terms' magnitudes.
struct Element {
  double value = 0;
  double size = 0;
  void add(double term) {
    value += term;
    size += std::abs(term);
  }
};

Element product_at(
    const Problem& problem, bool biased, std::int64_t i, std::int64_t row, std::int64_t column) {
  const GemmCall& call = problem.call;
  Element element;
  for (std::int64_t k = 0; k < call.k; ++k) {
    const std::int64_t a = call.transpose_a ? k * call.lda + row : row * call.lda + k;
    const std::int64_t b = call.transpose_b ? column * call.ldb + k : k * call.ldb + column;
    element.add(problem.a[i * call.stride_a + a] * problem.b[i * call.stride_b + b]);
  }
  element.add(call.beta * problem.c[i * call.stride_c + row * call.ldc + column]);
  element.add(biased ? problem.bias[column] : 0.0);
  return element;
}

/// Roundings: one of each operand through TF32, one of each addition in fp32, two of the result
/// (a kernel may round once before it adds C).
double bound(const Problem& problem, Dtypes dtypes, const Element& element) {
  const double operands =
      dtypes.operands == Dtype::Tf32 ? 4 * unit_roundoff(Dtype::Tf32) : 0.0;  // May truncate.
  const double sums = static_cast<double>(problem.call.k + 2) * unit_roundoff(Dtype::F32);
  return (operands + sums) * element.size + 2 * unit_roundoff(dtypes.result) * element.size;
}

void check(Gemm& gemm, const Stream& stream, Problem& problem, Dtypes dtypes, bool biased) {
  const Dtype operands = dtypes.operands == Dtype::Tf32 ? Dtype::F32 : dtypes.operands;
  const DeviceArray a(stream, operands, problem.a);
  const DeviceArray b(stream, operands, problem.b);
  const DeviceArray c(stream, dtypes.result, problem.c);
  const DeviceArray bias(stream, dtypes.result, problem.bias);
  GemmCall& call = problem.call;
  call.a = a.array();
  call.b = b.array();
  call.c = c.array();
  if (biased) {
    call.bias = bias.array();
  }
  gemm.run(stream, call);
  std::vector<double> result = c.read(stream);
  double worst = 0;  // In bounds.
  for (std::int64_t i = 0; i < call.batch; ++i) {
    for (std::int64_t row = 0; row < call.m; ++row) {
      for (std::int64_t column = 0; column < call.n; ++column) {
        const auto at = static_cast<std::size_t>(i * call.stride_c + row * call.ldc + column);
        const Element expected = product_at(problem, biased, i, row, column);
        const double apart =
            std::abs(result[at] - expected.value) / bound(problem, dtypes, expected);
        worst = std::isnan(apart) ? INFINITY : std::max(worst, apart);
        result[at] = problem.c[at];
      }
    }
  }
  CHECK(worst <= 1);
  CHECK(result == problem.c);  // Nothing between the rows was touched.
}

constexpr Dtypes kDtypes[] = {{Dtype::F32, Dtype::F32},
                              {Dtype::Tf32, Dtype::F32},
                              {Dtype::Bf16, Dtype::Bf16},
                              {Dtype::Bf16, Dtype::F32},
                              {Dtype::F16, Dtype::F16},
                              {Dtype::F16, Dtype::F32}};

}  // namespace

TEST_CASE("products in every dtype, layout and epilogue") {
  const Stream stream;
  Gemm gemm;
  const std::int64_t sizes[][3] = {{1, 8, 16}, {40, 24, 56}, {33, 17, 65}, {130, 72, 256}};
  for (const auto& [m, n, k] : sizes) {
    for (const Dtypes dtypes : kDtypes) {
      for (int layout = 0; layout < 4; ++layout) {
        for (int option = 0; option < 4; ++option) {
          GemmCall call;
          call.transpose_a = layout % 2 == 1;
          call.transpose_b = layout / 2 == 1;
          call.beta = option % 2 == 1 ? 1.0F : 0.0F;
          call.batch = option == 3 ? 3 : 1;
          const bool biased = option == 2;
          Problem problem = make_problem(m, n, k, call, dtypes, option == 0 ? 0 : 8);
          CAPTURE(m);
          CAPTURE(name_of(dtypes.operands));
          CAPTURE(name_of(dtypes.result));
          CAPTURE(layout);
          CAPTURE(option);
          check(gemm, stream, problem, dtypes, biased);
        }
      }
    }
  }
}

TEST_CASE("what a beta of 0 overwrites is not read") {
  const Stream stream;
  Gemm gemm;
  const Dtypes dtypes{Dtype::F32, Dtype::F32};
  Problem problem = make_problem(16, 16, 16, {}, dtypes, 0);
  const std::vector<double> nothing(problem.c.size(), NAN);
  const DeviceArray a(stream, Dtype::F32, problem.a);
  const DeviceArray b(stream, Dtype::F32, problem.b);
  const DeviceArray c(stream, Dtype::F32, nothing);
  problem.call.a = a.array();
  problem.call.b = b.array();
  problem.call.c = c.array();
  gemm.run(stream, problem.call);
  for (const double value : c.read(stream)) {
    CHECK(std::isfinite(value));
  }
}
