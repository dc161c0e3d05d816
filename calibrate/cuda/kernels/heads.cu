#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/kernels/pack.cuh"
#include "calibrate/cuda/kernels/team.cuh"

namespace stepsim::cuda {
namespace {

constexpr int kCopyThreads = 256;
/// Packs that a thread copies of one tile of positions.
constexpr int kPacksEach = 4;

/// Attention heads, and how their copies are cut: a block has some positions of one head.
struct HeadCopy {
  std::int64_t samples;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t stride;  ///< The stride of the rows of tokens.
  int packs;            ///< Packs of a head's features.
  int positions;        ///< Positions of a tile.
  std::int64_t tiles;   ///< Tiles of a head's positions.
};

HeadCopy head_copy(std::int64_t samples,
                   std::int64_t length,
                   std::int64_t heads,
                   std::int64_t kv_heads,
                   std::int64_t head_dim,
                   std::int64_t stride,
                   int pack) {
  const auto packs = static_cast<int>(head_dim / pack);
  const int positions = std::max(1, kCopyThreads * kPacksEach / packs);
  return {samples,
          length,
          heads,
          kv_heads,
          head_dim,
          stride,
          packs,
          positions,
          (length + positions - 1) / positions};
}

/// What a thread does for each pack of one tile: body(position, first feature).
template <int N, typename Body>
__device__ void each_pack(const HeadCopy& copy, std::int64_t tile, const Body& body) {
  const std::int64_t first = tile * copy.positions;
  const auto positions =
      static_cast<int>(min(static_cast<std::int64_t>(copy.positions), copy.length - first));
  for (int i = static_cast<int>(threadIdx.x); i < positions * copy.packs; i += kCopyThreads) {
    body(first + i / copy.packs, i % copy.packs * N);
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kCopyThreads) split(T* out, const T* x, HeadCopy copy) {
  const std::int64_t units = copy.samples * copy.heads * copy.tiles;
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t head = unit / copy.tiles % copy.heads;
    const std::int64_t sample = unit / copy.tiles / copy.heads;
    T* to = out + (sample * copy.heads + head) * copy.length * copy.head_dim;
    const T* from =
        x + sample * copy.length * copy.stride + head * copy.kv_heads / copy.heads * copy.head_dim;
    each_pack<N>(copy, unit % copy.tiles, [&](std::int64_t position, int feature) {
      float values[N];
      load<N>(values, from + position * copy.stride + feature);
      store<N>(to + position * copy.head_dim + feature, values);
    });
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kCopyThreads) merge(T* out, const T* x, HeadCopy copy) {
  const std::int64_t group = copy.heads / copy.kv_heads;
  const std::int64_t units = copy.samples * copy.kv_heads * copy.tiles;
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t kv_head = unit / copy.tiles % copy.kv_heads;
    const std::int64_t sample = unit / copy.tiles / copy.kv_heads;
    T* to = out + sample * copy.length * copy.stride + kv_head * copy.head_dim;
    const T* from = x + (sample * copy.heads + kv_head * group) * copy.length * copy.head_dim;
    each_pack<N>(copy, unit % copy.tiles, [&](std::int64_t position, int feature) {
      float sum[N] = {};
      for (std::int64_t head = 0; head < group; ++head) {
        float values[N];
        load<N>(values, from + (head * copy.length + position) * copy.head_dim + feature);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          sum[k] += values[k];
        }
      }
      store<N>(to + position * copy.stride + feature, sum);
    });
  }
}

/// Rotates the pairs (i, i + half) of every head of a token's row.
template <int N, typename T>
__global__ void __launch_bounds__(kMaxThreads) rotate_pairs(int team_size,
                                                            T* x,
                                                            std::int64_t stride,
                                                            int heads,
                                                            int half,
                                                            const std::int32_t* positions,
                                                            std::int64_t tokens,
                                                            const float* cosine,
                                                            const float* sine,
                                                            float direction) {
  const Team team = team_of(team_size);
  const int packs = half / N;
  for (std::int64_t token = team.first_row; token < tokens; token += team.row_step) {
    const std::int64_t angles = static_cast<std::int64_t>(positions[token]) * half;
    for (int i = team.rank; i < heads * packs; i += team.size) {
      const int feature = i % packs * N;
      T* low = x + token * stride + static_cast<std::int64_t>(i / packs) * 2 * half + feature;
      float a[N];
      float b[N];
      float c[N];
      float s[N];
      load<N>(a, low);
      load<N>(b, low + half);
      load<N>(c, cosine + angles + feature);
      load<N>(s, sine + angles + feature);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float turned = a[k] * c[k] - direction * b[k] * s[k];
        b[k] = b[k] * c[k] + direction * a[k] * s[k];
        a[k] = turned;
      }
      store<N>(low, a);
      store<N>(low + half, b);
    }
  }
}

void expect_groups(std::int64_t heads, std::int64_t kv_heads) {
  if (kv_heads < 1 || heads % kv_heads != 0) {
    throw InputError(std::to_string(kv_heads) + " key heads do not divide " +
                     std::to_string(heads) + " heads");
  }
}

}  // namespace

void split_heads(const Stream& stream,
                 Array out,
                 ConstHeads x,
                 std::int64_t samples,
                 std::int64_t length,
                 std::int64_t heads,
                 std::int64_t kv_heads,
                 std::int64_t head_dim) {
  expect_dtype(out.dtype, x.array);
  expect_groups(heads, kv_heads);
  with_type(out.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    auto* to = data_of<T>(out);
    const auto* from = data_of<T>(x.array);
    const bool packed = head_dim % kN == 0 && x.stride % kN == 0 && aligned(kN, to, from);
    const HeadCopy copy =
        head_copy(samples, length, heads, kv_heads, head_dim, x.stride, packed ? kN : 1);
    launch(packed ? split<kN, T> : split<1, T>,
           samples * heads * copy.tiles,
           kCopyThreads,
           stream,
           to,
           from,
           copy);
  });
}

void merge_heads(const Stream& stream,
                 Heads out,
                 ConstArray x,
                 std::int64_t samples,
                 std::int64_t length,
                 std::int64_t heads,
                 std::int64_t kv_heads,
                 std::int64_t head_dim) {
  expect_dtype(x.dtype, out.array);
  expect_groups(heads, kv_heads);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    auto* to = data_of<T>(out.array);
    const auto* from = data_of<T>(x);
    const bool packed = head_dim % kN == 0 && out.stride % kN == 0 && aligned(kN, to, from);
    const HeadCopy copy =
        head_copy(samples, length, heads, kv_heads, head_dim, out.stride, packed ? kN : 1);
    launch(packed ? merge<kN, T> : merge<1, T>,
           samples * kv_heads * copy.tiles,
           kCopyThreads,
           stream,
           to,
           from,
           copy);
  });
}

void rotate(const Stream& stream,
            Heads x,
            std::int64_t heads,
            std::int64_t head_dim,
            const std::int32_t* positions,
            std::int64_t tokens,
            const float* cosine,
            const float* sine,
            bool inverse) {
  if (head_dim % 2 != 0) {
    throw InputError("rotary positions need an even head_dim, not " + std::to_string(head_dim));
  }
  const std::int64_t half = head_dim / 2;
  with_type(x.array.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    auto* data = data_of<T>(x.array);
    const bool packed = half % kN == 0 && x.stride % kN == 0 && aligned(kN, data, cosine, sine);
    launch_rows(packed ? rotate_pairs<kN, T> : rotate_pairs<1, T>,
                stream,
                tokens,
                heads * half / (packed ? kN : 1),
                data,
                x.stride,
                static_cast<int>(heads),
                static_cast<int>(half),
                positions,
                tokens,
                cosine,
                sine,
                inverse ? -1.0F : 1.0F);
  });
}

}  // namespace stepsim::cuda
