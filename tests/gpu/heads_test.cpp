#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "costmodel/base/input_error.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {
namespace {

struct HeadShape {
  std::int64_t samples;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t stride;  ///< Elements from a token to the next.

  [[nodiscard]] std::int64_t copied() const { return samples * heads * length * head_dim; }
  [[nodiscard]] std::int64_t in_rows() const { return samples * length * stride; }
  /// Where feature `i` of a copy [sample][head][position][head_dim] lies in the rows of tokens.
  [[nodiscard]] std::int64_t row_index(std::int64_t i) const {
    const std::int64_t feature = i % head_dim;
    const std::int64_t position = i / head_dim % length;
    const std::int64_t head = i / head_dim / length % heads;
    const std::int64_t sample = i / head_dim / length / heads;
    return (sample * length + position) * stride + head * kv_heads / heads * head_dim + feature;
  }
};

/// Grouped, multi-query and plain heads; whole packs, none, and rows wider than the heads.
std::vector<HeadShape> head_shapes() {
  std::vector<HeadShape> result{{2, 5, 4, 4, 16, 64},
                                {2, 5, 4, 2, 16, 40},
                                {1, 7, 6, 1, 5, 5},
                                {3, 1, 4, 2, 8, 19},
                                {1, 300, 2, 2, 64, 384}};
  if (!small()) {
    result.push_back({4, 1000, 32, 8, 128, 6144});
  }
  return result;
}

}  // namespace

TEST_CASE("cuda: heads split and merged") {
  for (const Dtype dtype : kDtypes) {
    for (const HeadShape& shape : head_shapes()) {
      CAPTURE(shape.head_dim);
      CAPTURE(shape.kv_heads);
      const DeviceArray x(dtype, numbers(shape.in_rows(), 1));
      const DeviceArray copies(dtype, numbers(shape.copied(), 2));
      const DeviceArray split(dtype, shape.copied());
      const DeviceArray merged(dtype, x.values());
      split_heads(stream(),
                  split.array(),
                  {x.array(), shape.stride},
                  shape.samples,
                  shape.length,
                  shape.heads,
                  shape.kv_heads,
                  shape.head_dim);
      merge_heads(stream(),
                  {merged.array(), shape.stride},
                  copies.array(),
                  shape.samples,
                  shape.length,
                  shape.heads,
                  shape.kv_heads,
                  shape.head_dim);
      std::vector<double> of_split;
      std::vector<Expected> of_merged;
      for (const double before : x.values()) {  // Columns beside the heads stay as they were.
        of_merged.push_back({before, 0});
      }
      for (std::int64_t i = 0; i < shape.copied(); ++i) {
        of_split.push_back(x[shape.row_index(i)]);
        of_merged[static_cast<std::size_t>(shape.row_index(i))] = {0, 0};
      }
      for (std::int64_t i = 0; i < shape.copied(); ++i) {
        Expected& sum = of_merged[static_cast<std::size_t>(shape.row_index(i))];
        sum.value += copies[i];
        sum.scale += std::abs(copies[i]);
      }
      check_exact(split, of_split);
      check(merged, of_merged, depth(shape.heads / shape.kv_heads));
    }
  }
  const DeviceArray x(Dtype::F32, numbers(24, 1));
  CHECK_THROWS_AS(split_heads(stream(), x.array(), {x.array(), 24}, 1, 1, 3, 2, 8), InputError);
}

TEST_CASE("cuda: rotary positions, forward and back") {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t head_dim : {2, 6, 16, 64}) {
      for (const bool inverse : {false, true}) {
        CAPTURE(head_dim);
        CAPTURE(inverse);
        constexpr std::int64_t kTokens = 11;
        constexpr std::int64_t kHeads = 3;
        constexpr std::int64_t kPositions = 7;
        const std::int64_t half = head_dim / 2;
        const std::int64_t stride = kHeads * head_dim + 16;
        std::vector<std::int32_t> of_tokens;
        for (std::int32_t token = 0; token < kTokens; ++token) {
          of_tokens.push_back(token * 3 % kPositions);
        }
        const DeviceInts positions(of_tokens);
        const DeviceArray cosine(Dtype::F32, numbers(kPositions * half, 1));
        const DeviceArray sine(Dtype::F32, numbers(kPositions * half, 2));
        const DeviceArray x(dtype, numbers(kTokens * stride, 3));
        rotate(stream(),
               {x.array(), stride},
               kHeads,
               head_dim,
               positions.data(),
               kTokens,
               cosine.floats(),
               sine.floats(),
               inverse);
        std::vector<Expected> expected;
        for (std::int64_t i = 0; i < kTokens * stride; ++i) {
          const std::int64_t column = i % stride;
          const std::int64_t feature = column % head_dim;
          if (column >= kHeads * head_dim) {
            expected.push_back({x[i], 0});
            continue;
          }
          const std::int64_t at = positions[i / stride] * half + feature % half;
          const bool first = feature < half;
          const double other = (first == inverse ? 1 : -1) * x[first ? i + half : i - half];
          const double a = x[i] * cosine[at];
          const double b = other * sine[at];
          expected.push_back({a + b, std::abs(a) + std::abs(b)});
        }
        check(x, expected, 3);
      }
    }
  }
}

}  // namespace stepsim::cuda::test
