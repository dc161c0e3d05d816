#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/kernels/pack.cuh"
#include "calibrate/cuda/kernels/softmax_sum.cuh"
#include "calibrate/cuda/kernels/team.cuh"

namespace stepsim::cuda {
namespace {

/// The keys [low, high) that a query sees.
struct KeyRange {
  std::int64_t low;
  std::int64_t high;
};

/// The place of a row of [sample][head][query]; rows of scores that fit in memory count in 32 bits.
__device__ KeyRange keys_of(const ScoreMask& mask,
                            std::int64_t row,
                            std::int64_t heads,
                            std::int64_t length) {
  const auto queries = static_cast<std::uint32_t>(length);
  const std::uint32_t head = static_cast<std::uint32_t>(row) / queries;
  const std::int64_t query = static_cast<std::uint32_t>(row) % queries;
  const std::uint32_t sample = head / static_cast<std::uint32_t>(heads);
  KeyRange keys{0, mask.lengths == nullptr ? length : mask.lengths[sample]};
  if (mask.causal) {
    keys.high = min(keys.high, query + 1);
  }
  if (mask.window > 0) {
    keys.low = max(keys.low, query - mask.window + 1);
    keys.high = min(keys.high, query + mask.window);
  }
  return keys;
}

/// Scaled scores, -infinity for keys that the query does not see.
template <int N, typename T>
__device__ void load_scores(
    float (&to)[N], const T* row, std::int64_t i, float scale, const KeyRange& keys) {
  load<N>(to, row + i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    to[k] = i + k >= keys.low && i + k < keys.high ? to[k] * scale : -INFINITY;
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kMaxThreads) softmax(int team_size,
                                                       T* scores,
                                                       float scale,
                                                       ScoreMask mask,
                                                       std::int64_t rows,
                                                       std::int64_t heads,
                                                       std::int64_t length) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    T* data = scores + row * length;
    const KeyRange keys = keys_of(mask, row, heads, length);
    float values[N];
    SoftmaxSum sum{-INFINITY, 0};
    for (std::int64_t i = team.rank * N; i < length; i += team.size * N) {
      load_scores<N>(values, data, i, scale, keys);
      sum = together(sum, softmax_sum_of<N>(values));
    }
    sum = reduce(team, sum, Together{});
    const float inverse = 1.0F / sum.total;  // Unused where no key is seen.
    for (std::int64_t i = team.rank * N; i < length; i += team.size * N) {
      load_scores<N>(values, data, i, scale, keys);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        values[k] = values[k] == -INFINITY ? 0.0F : expf(values[k] - sum.top) * inverse;
      }
      store<N>(data + i, values);
    }
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kMaxThreads) softmax_gradient(int team_size,
                                                                T* gradient,
                                                                const T* probabilities,
                                                                float scale,
                                                                std::int64_t rows,
                                                                std::int64_t length) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    T* g_row = gradient + row * length;
    const T* p_row = probabilities + row * length;
    float g[N];
    float p[N];
    float dot = 0;
    for (std::int64_t i = team.rank * N; i < length; i += team.size * N) {
      load<N>(g, g_row + i);
      load<N>(p, p_row + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        dot += g[k] * p[k];
      }
    }
    dot = reduce_sum(team, dot);
    for (std::int64_t i = team.rank * N; i < length; i += team.size * N) {
      load<N>(g, g_row + i);
      load<N>(p, p_row + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        g[k] = scale * p[k] * (g[k] - dot);
      }
      store<N>(g_row + i, g);
    }
  }
}

}  // namespace

void softmax_forward(const Stream& stream,
                     Array scores,
                     float scale,
                     const ScoreMask& mask,
                     std::int64_t samples,
                     std::int64_t heads,
                     std::int64_t length) {
  with_type(scores.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    auto* data = data_of<T>(scores);
    const bool packed = length % kN == 0 && aligned(kN, data);
    const std::int64_t rows = samples * heads * length;
    launch_rows(packed ? softmax<kN, T> : softmax<1, T>,
                stream,
                rows,
                packed ? length / kN : length,
                data,
                scale,
                mask,
                rows,
                heads,
                length);
  });
}

void softmax_backward(const Stream& stream,
                      Array gradient,
                      ConstArray probabilities,
                      float scale,
                      std::int64_t rows,
                      std::int64_t length) {
  expect_dtype(gradient.dtype, probabilities);
  with_type(gradient.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    auto* g = data_of<T>(gradient);
    const auto* p = data_of<T>(probabilities);
    const bool packed = length % kN == 0 && aligned(kN, g, p);
    launch_rows(packed ? softmax_gradient<kN, T> : softmax_gradient<1, T>,
                stream,
                rows,
                packed ? length / kN : length,
                g,
                p,
                scale,
                rows,
                length);
  });
}

}  // namespace stepsim::cuda
