#include "calibrate/cuda/attention/sdpa.h"

#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/cuda/attention/sdpa_graph.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "costmodel/base/input_error.h"
#include "tests/gpu/attention_check.h"

using namespace stepsim;
using namespace stepsim::cuda;
using test::DeviceArray;
using test::DeviceInts;
using test::stream;

namespace {

/// q, k, v side by side in one row a token, as a fused projection writes them.
class FusedRows {
 public:
  explicit FusedRows(const PlainAttention& problem)
      : shape_(problem.shape), rows_(problem.rows()), width_(shape_.q_stride) {}

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(rows_ * width_); }
  [[nodiscard]] std::int64_t k() const { return shape_.heads * shape_.head_dim; }
  [[nodiscard]] std::int64_t v() const { return k() + shape_.kv_heads * shape_.head_dim; }

  [[nodiscard]] std::vector<double> join(const PlainAttention& problem) const {
    std::vector<double> rows(size());
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t at = row * width_;
      for (std::int64_t i = 0; i < k(); ++i) {
        rows[at + i] = problem.q[at + i];
      }
      for (std::int64_t i = 0; i < v() - k(); ++i) {
        rows[at + k() + i] = problem.k[at + i];
        rows[at + v() + i] = problem.v[at + i];
      }
    }
    return rows;
  }

 private:
  SdpaShape shape_;
  std::int64_t rows_;
  std::int64_t width_;
};

/// Scores are sums of head_dim products below 1 in fp32, times the scale; the statistic adds a few
/// approximate functions.
double statistic_bound(const SdpaShape& shape) {
  const auto dim = static_cast<double>(shape.head_dim);
  return (dim + 8) * test::kRoundoff32 * std::max(8.0, std::sqrt(dim));
}

void check_statistics(const PlainAttention& problem,
                      const PlainResults& expected,
                      const std::vector<double>& statistics) {
  const SdpaShape& shape = problem.shape;
  double largest = 0;
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    const std::int64_t first = problem.offsets[static_cast<std::size_t>(sample)];
    for (std::int64_t row = 0; row < problem.lengths[static_cast<std::size_t>(sample)]; ++row) {
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t at = shape.packed ? (first + row) * shape.heads + head
                                             : (sample * shape.heads + head) * shape.length + row;
        const double apart =
            std::abs(statistics[at] - expected.statistics[(first + row) * shape.heads + head]);
        largest = apart <= largest ? largest : apart;
        CHECK_FALSE(std::isnan(apart));
      }
    }
  }
  CHECK(largest <= statistic_bound(shape));
}

/// Forward and backward against the formula.
///
/// Each term is rounded once to 16 bits (a probability, or a score's gradient), gradients of
/// grouped heads once more, and the result once; half a rounding is left for fp32 sums and
/// approximate exponentials.
///
/// A biased problem is a masked one whose mask is given as a tensor: padding is then not compared.
void check(Sdpa& sdpa, const PlainAttention& problem, bool is_biased = false) {
  const SdpaShape shape = is_biased ? biased(problem.shape) : problem.shape;
  const Compared compared = is_biased ? Compared::Useful : Compared::Stored;
  const DeviceArray mask(shape.dtype, is_biased ? mask_of(problem) : std::vector<double>{});
  const FusedRows fused(problem);
  const DeviceArray qkv(shape.dtype, fused.join(problem));
  const DeviceArray d_o(shape.dtype, problem.d_o);
  const DeviceArray o(shape.dtype, static_cast<std::int64_t>(problem.d_o.size()));
  const DeviceArray dqkv(shape.dtype, static_cast<std::int64_t>(fused.size()));
  const DeviceArray statistics(Dtype::F32, shape.samples * shape.heads * shape.length);
  const DeviceInts lengths(problem.lengths);
  const DeviceInts offsets(problem.offsets);
  const SdpaSequences sequences{.lengths = shape.masked || shape.packed ? lengths.data() : nullptr,
                                .offsets = shape.packed ? offsets.data() : nullptr,
                                .mask = is_biased ? mask.array().data : nullptr};
  float* const saved = statistics.floats();
  const Array q = qkv.array();
  const Array dq = dqkv.array();
  sdpa.forward(stream(), shape, sequences, {q, q.at(fused.k()), q.at(fused.v()), o.array(), saved});
  sdpa.backward(stream(),
                shape,
                sequences,
                {q,
                 q.at(fused.k()),
                 q.at(fused.v()),
                 o.array(),
                 d_o.array(),
                 saved,
                 dq,
                 dq.at(fused.k()),
                 dq.at(fused.v())});
  const PlainResults expected = attend(problem);
  const double u = test::unit_roundoff(shape.dtype);
  const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
  check_statistics(problem, expected, statistics.read());
  CHECK(worst(problem,
              compared,
              o.read(),
              0,
              expected.o,
              expected.sizes.o,
              shape.o_stride,
              fused.k(),
              2.5 * u) <= 1);
  const std::vector<double> gradients = dqkv.read();
  const std::int64_t stride = shape.q_stride;
  CHECK(worst(problem,
              compared,
              gradients,
              0,
              expected.dq,
              expected.sizes.dq,
              stride,
              fused.k(),
              2.5 * u) <= 1);
  CHECK(worst(problem,
              compared,
              gradients,
              fused.k(),
              expected.dk,
              expected.sizes.dk,
              stride,
              kv_width,
              3.5 * u) <= 1);
  CHECK(worst(problem,
              compared,
              gradients,
              fused.v(),
              expected.dv,
              expected.sizes.dv,
              stride,
              kv_width,
              3.5 * u) <= 1);
}

/// Dtypes, grouped heads, masks and paddings, in all combinations.
std::vector<SdpaShape> kinds(std::int64_t length) {
  std::vector<SdpaShape> shapes;
  for (const Dtype dtype : {Dtype::Bf16, Dtype::F16}) {
    for (const std::int64_t kv_heads : {4, 2, 1}) {
      for (int visible = 0; visible < 4; ++visible) {
        for (int padding = 0; padding < 3; ++padding) {
          SdpaShape shape;
          shape.dtype = dtype;
          shape.samples = 3;
          shape.length = length;
          shape.heads = 4;
          shape.kv_heads = kv_heads;
          shape.head_dim = 64;
          shape.causal = visible % 2 == 1;
          shape.window = visible / 2 == 1 ? length / 4 : 0;
          shape.masked = padding == 1;
          shape.packed = padding == 2;
          shapes.push_back(shape);
        }
      }
    }
  }
  return shapes;
}

/// Head dimensions, and a length of many tiles.
std::vector<SdpaShape> sizes() {
  std::vector<SdpaShape> shapes;
  for (const std::int64_t head_dim : {8, 40, 80, 128}) {
    SdpaShape shape;
    shape.samples = 2;
    shape.length = test::emulated() ? 9 : 130;
    shape.heads = 2;
    shape.kv_heads = 2;
    shape.head_dim = head_dim;
    shape.causal = true;
    shapes.push_back(shape);
  }
  if (!test::emulated()) {
    shapes.back().length = 1100;
  }
  return shapes;
}

/// Compiles the kernels of all shapes side by side, then checks them.
void check_all(const std::vector<SdpaShape>& shapes, bool is_biased = false) {
  std::vector<PlainAttention> problems;
  std::vector<SdpaShape> with_strides;
  for (const SdpaShape& shape : shapes) {
    const auto longest = static_cast<std::int32_t>(shape.length);
    problems.push_back(plain_attention(shape, {longest, 1, longest / 2}, 3));
    if (is_biased) {
      clear_padding_gradient(problems.back());
    }
    const SdpaShape& prepared = problems.back().shape;
    with_strides.push_back(is_biased ? biased(prepared) : prepared);
  }
  Sdpa sdpa;
  for (const std::string& why : sdpa.prepare_all(with_strides)) {
    CHECK(why.empty());
  }
  for (const PlainAttention& problem : problems) {
    CAPTURE(describe(problem.shape));
    try {
      check(sdpa, problem, is_biased);
    } catch (const EnvironmentFault& fault) {
      FAIL_CHECK(fault.what());  // The other shapes are checked all the same.
    }
  }
}

}  // namespace

TEST_CASE("library: fused attention, forward and backward, of every kind") {
  check_all(kinds(test::emulated() ? 19 : 200));
}

TEST_CASE("library: fused attention with a mask that is a tensor") {
  std::vector<SdpaShape> shapes = kinds(test::emulated() ? 19 : 200);
  std::erase_if(shapes, [](const SdpaShape& shape) { return !shape.masked; });
  check_all(shapes, true);
}

// What a start costs with all kernels loaded and without, each library with one call.
TEST_CASE("library: one product by each library, and one attention") {
  for (const GemmRoute route : {GemmRoute::Lt, GemmRoute::Torch}) {
    Gemm gemm(route);
    const DeviceArray ones(Dtype::Bf16, std::vector<double>(64 * 64, 1.0));
    const DeviceArray product(Dtype::Bf16, 64 * 64);
    GemmCall call;
    call.m = call.n = call.k = call.lda = call.ldb = call.ldc = 64;
    call.a = call.b = ones.array();
    call.c = product.array();
    gemm.run(stream(), call);
    CHECK(product.read() == std::vector<double>(64 * 64, 64.0));
  }
  check_all({kinds(19).front()});
}

TEST_CASE("library: fused attention over head dimensions and lengths") {
  check_all(sizes());
}

TEST_CASE("library: shapes without a fused kernel are refused by name") {
  Sdpa sdpa;
  SdpaShape shape{.dtype = Dtype::Bf16,
                  .samples = 2,
                  .length = 64,
                  .heads = 2,
                  .kv_heads = 2,
                  .head_dim = 60,
                  .q_stride = 360,
                  .kv_stride = 360,
                  .o_stride = 120};
  CHECK_THROWS_WITH_AS(sdpa.prepare(shape),
                       doctest::Contains("2 x 64 tokens, 2 heads (2 kv) of 60"),
                       EnvironmentFault);
}
