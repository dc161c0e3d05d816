#pragma once

#include <cstdint>

#include "calibrate/cuda/kernels/pack.cuh"

/// Sums over rows, column by column: a block has a tile of columns, a warp N columns a lane, and
/// the warps take turns at the rows. Long columns are cut into chunks of rows, whose sums a second
/// launch adds.
namespace stepsim::cuda {

constexpr int kColumnLanes = 32;
constexpr int kColumnWarps = 8;
constexpr int kColumnThreads = kColumnLanes * kColumnWarps;

/// Rows summed by one block, and how many such chunks there are: at most 128.
struct RowChunks {
  std::int64_t rows_each = 0;
  std::int64_t count = 0;
};
inline RowChunks row_chunks(std::int64_t rows) {
  const std::int64_t rows_each = std::max<std::int64_t>(64, (rows + 127) / 128);
  return {rows_each, (rows + rows_each - 1) / rows_each};
}

template <int N>
std::int64_t column_tiles(std::int64_t width) {
  return (width + kColumnLanes * N - 1) / (kColumnLanes * N);
}

/// The first of this thread's N columns in a tile.
template <int N>
__device__ std::int64_t first_column(std::int64_t tile) {
  return (tile * kColumnLanes + threadIdx.x % kColumnLanes) * N;
}

/// Adds up S sums a column over the rows [begin, end) of one tile and hands each to
/// finish(sum, column, value). add(row, column, sums) adds one row to N columns' sums. All threads
/// of a block of kColumnThreads must call it.
template <int N, int S, typename Add, typename Finish>
__device__ void sum_columns(std::int64_t tile,
                            std::int64_t begin,
                            std::int64_t end,
                            std::int64_t width,
                            const Add& add,
                            const Finish& finish) {
  __shared__ float parts[kColumnWarps][S][kColumnLanes * N];
  const int lane = static_cast<int>(threadIdx.x) % kColumnLanes;
  const int warp = static_cast<int>(threadIdx.x) / kColumnLanes;
  const std::int64_t column = first_column<N>(tile);
  float sums[S][N] = {};
  if (column < width) {
#pragma unroll 4
    for (std::int64_t row = begin + warp; row < end; row += kColumnWarps) {
      add(row, column, sums);
    }
  }
  __syncthreads();  // Every thread has read the tile before.
#pragma unroll
  for (int s = 0; s < S; ++s) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      parts[warp][s][lane * N + i] = sums[s][i];
    }
  }
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  const std::int64_t total_column = tile * kColumnLanes * N + mine;
  if (mine < kColumnLanes * N && total_column < width) {
    for (int s = 0; s < S; ++s) {
      float total = 0;
      for (int part = 0; part < kColumnWarps; ++part) {
        total += parts[part][s][mine];
      }
      finish(s, total_column, total);
    }
  }
}

/// first[column] += sum over chunks of partials[chunk][column], the columns from `width` on into
/// `second`; `columns` is the length of a chunk's sums.
template <typename T>
__global__ void __launch_bounds__(kColumnThreads) add_partial_sums(T* first,
                                                                   T* second,
                                                                   const float* partials,
                                                                   std::int64_t chunks,
                                                                   std::int64_t width,
                                                                   std::int64_t columns) {
  const std::int64_t tiles = (columns + kColumnLanes - 1) / kColumnLanes;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    sum_columns<1, 1>(
        tile,
        0,
        chunks,
        columns,
        [&](std::int64_t chunk, std::int64_t column, float(&sums)[1][1]) {
          sums[0][0] += partials[chunk * columns + column];
        },
        [&](int, std::int64_t column, float total) {
          T* to = column < width ? first + column : second + (column - width);
          *to = from_float<T>(to_float(*to) + total);
        });
  }
}

}  // namespace stepsim::cuda
