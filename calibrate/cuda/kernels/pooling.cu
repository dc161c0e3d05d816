#include "calibrate/cuda/kernels/columns.cuh"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/kernels/team.cuh"

namespace stepsim::cuda {
namespace {

/// Rows of one sample: all of them, and how many are useful.
struct SampleRows {
  std::int64_t first;
  std::int64_t count;
  std::int64_t useful;
};

__device__ SampleRows rows_of(const SequenceRows& sequences, std::int64_t sample) {
  SampleRows rows{sample * sequences.length, sequences.length, 0};
  if (sequences.offsets != nullptr) {
    rows.first = sequences.offsets[sample];
    rows.count = sequences.offsets[sample + 1] - rows.first;
  }
  rows.useful = sequences.lengths == nullptr
                    ? rows.count
                    : min(rows.count, static_cast<std::int64_t>(sequences.lengths[sample]));
  return rows;
}

/// Rows that go into the result, each with the same weight.
__device__ std::int64_t pooled_rows(const SampleRows& rows, bool mean) {
  return mean ? rows.useful : min(rows.useful, std::int64_t{1});
}

template <int N, typename T>
__global__ void __launch_bounds__(kColumnThreads) pool(
    T* out, const T* x, SequenceRows sequences, std::int64_t width, bool mean, std::int64_t tiles) {
  for (std::int64_t unit = blockIdx.x; unit < tiles * sequences.samples; unit += gridDim.x) {
    const std::int64_t sample = unit / tiles;
    const SampleRows rows = rows_of(sequences, sample);
    const std::int64_t pooled = pooled_rows(rows, mean);
    sum_columns<N, 1>(
        unit % tiles,
        rows.first,
        rows.first + pooled,
        width,
        [&](std::int64_t row, std::int64_t column, float(&sums)[1][N]) {
          float values[N];
          load<N>(values, x + row * width + column);
#pragma unroll
          for (int i = 0; i < N; ++i) {
            sums[0][i] += values[i];
          }
        },
        [&](int, std::int64_t column, float total) {
          const float weight = pooled > 0 ? 1.0F / static_cast<float>(pooled) : 0.0F;
          out[sample * width + column] = from_float<T>(total * weight);
        });
  }
}

template <int N, typename T>
__global__ void pool_gradient(
    int team_size, T* dx, const T* dout, SequenceRows sequences, std::int64_t width, bool mean) {
  const Team team = team_of(team_size);
  const std::int64_t most = sequences.samples * sequences.length;
  for (std::int64_t unit = team.first_row; unit < most; unit += team.row_step) {
    const std::int64_t sample = unit / sequences.length;
    const std::int64_t position = unit % sequences.length;
    const SampleRows rows = rows_of(sequences, sample);
    if (position >= rows.count) {
      continue;
    }
    const std::int64_t pooled = pooled_rows(rows, mean);
    const float weight = position < pooled ? 1.0F / static_cast<float>(pooled) : 0.0F;
    T* to = dx + (rows.first + position) * width;
    const T* from = dout + sample * width;
    for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
      float values[N];
      load<N>(values, from + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        values[k] = position < pooled ? values[k] * weight : 0.0F;
      }
      store<N>(to + i, values);
    }
  }
}

}  // namespace

void pool_forward(const Stream& stream,
                  Array out,
                  ConstArray x,
                  const SequenceRows& sequences,
                  std::int64_t width,
                  bool mean) {
  expect_dtype(x.dtype, out);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    const auto* from = data_of<T>(x);
    const bool packed = width % kN == 0 && aligned(kN, from);
    const std::int64_t tiles = packed ? column_tiles<kN>(width) : column_tiles<1>(width);
    launch(packed ? pool<kN, T> : pool<1, T>,
           tiles * sequences.samples,
           kColumnThreads,
           stream,
           data_of<T>(out),
           from,
           sequences,
           width,
           mean,
           tiles);
  });
}

void pool_backward(const Stream& stream,
                   Array dx,
                   ConstArray dout,
                   const SequenceRows& sequences,
                   std::int64_t width,
                   bool mean) {
  expect_dtype(dout.dtype, dx);
  with_type(dout.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    auto* to = data_of<T>(dx);
    const auto* from = data_of<T>(dout);
    const bool packed = width % kN == 0 && aligned(kN, to, from);
    launch_rows(packed ? pool_gradient<kN, T> : pool_gradient<1, T>,
                stream,
                sequences.samples * sequences.length,
                packed ? width / kN : width,
                to,
                from,
                sequences,
                width,
                mean);
  });
}

}  // namespace stepsim::cuda
