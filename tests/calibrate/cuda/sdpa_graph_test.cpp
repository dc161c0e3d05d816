#include "calibrate/cuda/attention/sdpa_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/calibrate/cuda/graph_interpreter.h"
#include "tests/calibrate/cuda/plain_attention.h"

using namespace stepsim;
using namespace stepsim::cuda;

namespace {

std::vector<double> widened(const std::vector<std::int32_t>& values, std::int64_t factor) {
  std::vector<double> result;
  for (const std::int32_t value : values) {
    result.push_back(static_cast<double>(value * factor));
  }
  return result;
}

/// What a caller binds, with outputs of the right sizes.
GraphMemory memory_of(const PlainAttention& problem) {
  const SdpaShape& shape = problem.shape;
  const auto rows = static_cast<std::size_t>(shape.samples * shape.heads * shape.length);
  GraphMemory memory;
  memory[GraphRole::Q] = problem.q;
  memory[GraphRole::K] = problem.k;
  memory[GraphRole::V] = problem.v;
  memory[GraphRole::DO] = problem.d_o;
  memory[GraphRole::O].resize(problem.d_o.size());
  memory[GraphRole::DQ].resize(problem.q.size());
  memory[GraphRole::DK].resize(problem.k.size());
  memory[GraphRole::DV].resize(problem.v.size());
  memory[GraphRole::Statistics].resize(rows);
  memory[GraphRole::SoftmaxSum].resize(rows);
  memory[GraphRole::DQSum].resize(rows * static_cast<std::size_t>(shape.head_dim));
  memory[GraphRole::Lengths] = widened(problem.lengths, 1);
  memory[GraphRole::QOffsets] = widened(problem.offsets, shape.q_stride);
  memory[GraphRole::KvOffsets] = widened(problem.offsets, shape.kv_stride);
  memory[GraphRole::OOffsets] = widened(problem.offsets, shape.o_stride);
  memory[GraphRole::StatisticsOffsets] = widened(problem.offsets, shape.heads);
  memory[GraphRole::Scale] = {1.0 / std::sqrt(static_cast<double>(shape.head_dim))};
  memory[GraphRole::One] = {1.0};
  memory[GraphRole::MaskFill] = {-std::numeric_limits<double>::infinity()};
  memory[GraphRole::WindowLeft] = {static_cast<double>(shape.window)};
  memory[GraphRole::WindowRight] = {static_cast<double>(shape.window - 1)};
  return memory;
}

/// Largest difference over the useful rows; `stride` elements a row, the first `columns` used.
double difference(const PlainAttention& problem,
                  const std::vector<double>& a,
                  const std::vector<double>& b,
                  std::int64_t stride,
                  std::int64_t columns) {
  double largest = 0;
  for (std::size_t sample = 0; sample < problem.lengths.size(); ++sample) {
    for (std::int64_t row = 0; row < problem.lengths[sample]; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto at = static_cast<std::size_t>((problem.offsets[sample] + row) * stride + column);
        const double apart = std::abs(a[at] - b[at]);
        if (!std::isnan(largest) && !(apart <= largest)) {
          largest = apart;  // Or not-a-number, which stays.
        }
      }
    }
  }
  return largest;
}

/// The statistics as [row][head].
std::vector<double> statistics_by_row(const PlainAttention& problem,
                                      const std::vector<double>& statistics) {
  const SdpaShape& shape = problem.shape;
  if (shape.packed) {
    return statistics;
  }
  std::vector<double> by_row(statistics.size());
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      for (std::int64_t row = 0; row < shape.length; ++row) {
        by_row[static_cast<std::size_t>((sample * shape.length + row) * shape.heads + head)] =
            statistics[static_cast<std::size_t>((sample * shape.heads + head) * shape.length +
                                                row)];
      }
    }
  }
  return by_row;
}

/// Every kind of graph over small sizes.
std::vector<SdpaShape> kinds() {
  std::vector<SdpaShape> shapes;
  for (const std::int64_t kv_heads : {4, 2, 1}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t window : {0, 1, 5}) {
        for (const int padding : {0, 1, 2}) {
          SdpaShape shape{.dtype = Dtype::Bf16,
                          .samples = 3,
                          .length = 13,
                          .heads = 4,
                          .kv_heads = kv_heads,
                          .head_dim = 8};
          shape.causal = causal;
          shape.window = window;
          shape.masked = padding == 1;
          shape.packed = padding == 2;
          shapes.push_back(shape);
        }
      }
    }
  }
  return shapes;
}

}  // namespace

// Sums of up to 13 x 8 terms of size about 1: 100 roundings of 1e-16.
constexpr double kBound = 1e-13;

TEST_CASE("the operation graphs compute attention and its gradients") {
  for (const SdpaShape& kind : kinds()) {
    const PlainAttention problem = plain_attention(kind, {13, 1, 7}, 5);
    const SdpaShape& shape = problem.shape;
    CAPTURE(describe(shape));
    const PlainResults expected = attend(problem);
    GraphMemory memory = memory_of(problem);
    interpret(sdpa_forward_graph(shape), memory);
    const std::int64_t q_width = shape.heads * shape.head_dim;
    const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
    CHECK(difference(problem, memory[GraphRole::O], expected.o, shape.o_stride, q_width) < kBound);
    const std::vector<double> statistics =
        statistics_by_row(problem, memory[GraphRole::Statistics]);
    CHECK(difference(problem, statistics, expected.statistics, shape.heads, shape.heads) < kBound);
    interpret(sdpa_backward_graph(shape), memory);
    CHECK(difference(problem, memory[GraphRole::DQ], expected.dq, shape.q_stride, q_width) <
          kBound);
    CHECK(difference(problem, memory[GraphRole::DK], expected.dk, shape.kv_stride, kv_width) <
          kBound);
    CHECK(difference(problem, memory[GraphRole::DV], expected.dv, shape.kv_stride, kv_width) <
          kBound);
  }
}

TEST_CASE("statistics of rows of padding, which are undefined, reach no gradient") {
  for (const SdpaShape& kind : kinds()) {
    if (!kind.masked) {
      continue;
    }
    const PlainAttention problem = plain_attention(kind, {13, 1, 7}, 5);
    const SdpaShape& shape = problem.shape;
    CAPTURE(describe(shape));
    const PlainResults expected = attend(problem);
    GraphMemory memory = memory_of(problem);
    interpret(sdpa_forward_graph(shape), memory);
    for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
      for (std::int64_t row = problem.lengths[static_cast<std::size_t>(sample)]; row < shape.length;
           ++row) {
        for (std::int64_t head = 0; head < shape.heads; ++head) {
          memory[GraphRole::Statistics]
                [static_cast<std::size_t>((sample * shape.heads + head) * shape.length + row)] =
                    std::numeric_limits<double>::quiet_NaN();
        }
        const auto o =
            memory[GraphRole::O].begin() + (sample * shape.length + row) * shape.o_stride;
        std::fill_n(o, shape.o_stride, 0.0);  // As Sdpa leaves it.
      }
    }
    SdpaGraph graph = sdpa_backward_graph(shape);
    for (GraphOperation& step : graph.operations) {
      step.m = step.n = step.k = nullptr;  // The masks alone must keep padding out.
    }
    interpret(graph, memory);
    const std::int64_t q_width = shape.heads * shape.head_dim;
    const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
    CHECK(difference(problem, memory[GraphRole::DQ], expected.dq, shape.q_stride, q_width) <
          kBound);
    CHECK(difference(problem, memory[GraphRole::DK], expected.dk, shape.kv_stride, kv_width) <
          kBound);
    CHECK(difference(problem, memory[GraphRole::DV], expected.dv, shape.kv_stride, kv_width) <
          kBound);
  }
}

TEST_CASE("with a mask as a tensor the graphs compute what they compute with lengths") {
  for (const SdpaShape& kind : kinds()) {
    if (!kind.masked) {
      continue;
    }
    PlainAttention problem = plain_attention(kind, {13, 1, 7}, 5);
    CAPTURE(describe(problem.shape));
    clear_padding_gradient(problem);
    const PlainResults expected = attend(problem);
    GraphMemory memory = memory_of(problem);
    memory[GraphRole::Mask] = mask_of(problem);
    const SdpaShape shape = biased(problem.shape);
    interpret(sdpa_forward_graph(shape), memory);
    interpret(sdpa_backward_graph(shape), memory);
    const std::int64_t q_width = shape.heads * shape.head_dim;
    const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
    CHECK(difference(problem, memory[GraphRole::O], expected.o, shape.o_stride, q_width) < kBound);
    CHECK(difference(problem, memory[GraphRole::DQ], expected.dq, shape.q_stride, q_width) <
          kBound);
    CHECK(difference(problem, memory[GraphRole::DK], expected.dk, shape.kv_stride, kv_width) <
          kBound);
    CHECK(difference(problem, memory[GraphRole::DV], expected.dv, shape.kv_stride, kv_width) <
          kBound);
  }
}

TEST_CASE("the gradients of plain attention are those of finite differences") {
  SdpaShape kind{.samples = 2, .length = 6, .heads = 2, .kv_heads = 1, .head_dim = 8};
  kind.causal = true;
  kind.window = 3;
  kind.masked = true;
  PlainAttention problem = plain_attention(kind, {6, 4}, 9);
  const PlainResults results = attend(problem);
  const auto loss = [&] {
    const PlainResults now = attend(problem);
    double sum = 0;
    for (std::size_t i = 0; i < now.o.size(); ++i) {
      sum += now.o[i] * problem.d_o[i];
    }
    return sum;
  };
  const auto slope = [&](double& input) {
    constexpr double kStep = 1e-5;
    const double old = input;
    input = old + kStep;
    const double above = loss();
    input = old - kStep;
    const double below = loss();
    input = old;
    return (above - below) / (2 * kStep);
  };
  const auto used = static_cast<std::size_t>(problem.shape.head_dim);
  for (std::size_t row = 0; row < 10; ++row) {
    for (std::size_t column = 0; column < used; column += 3) {
      const std::size_t q = row * static_cast<std::size_t>(problem.shape.q_stride) + column;
      const std::size_t kv = row * static_cast<std::size_t>(problem.shape.kv_stride) + column;
      // The step's square and the rounding of the sums over the step.
      CHECK(slope(problem.q[q]) == doctest::Approx(results.dq[q]).epsilon(1e-8));
      CHECK(slope(problem.k[kv]) == doctest::Approx(results.dk[kv]).epsilon(1e-8));
      CHECK(slope(problem.v[kv]) == doctest::Approx(results.dv[kv]).epsilon(1e-8));
    }
  }
}
