#include "calibrate/cuda/kernels/columns.cuh"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/kernels/team.cuh"

namespace stepsim::cuda {
namespace {

template <int N, typename Out, typename Table>
__global__ void gather(int team_size,
                       Out* out,
                       const Table* table,
                       const std::int32_t* index,
                       std::int64_t rows,
                       std::int64_t width) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    const Table* from = table + index[row] * width;
    Out* to = out + row * width;
    for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
      float values[N];
      load<N>(values, from + i);
      store<N>(to + i, values);
    }
  }
}

/// *to += value, two numbers at a time where the device can.
__device__ void add_atomically(float* to, const float (&values)[1]) {
  atomicAdd(to, values[0]);
}
template <typename T>
__device__ void add_atomically(T* to, const float (&values)[1]) {
  atomicAdd(to, from_float<T>(values[0]));
}
__device__ void add_atomically(__nv_bfloat16* to, const float (&values)[2]) {
  atomicAdd(reinterpret_cast<__nv_bfloat162*>(to), __floats2bfloat162_rn(values[0], values[1]));
}
__device__ void add_atomically(__half* to, const float (&values)[2]) {
  atomicAdd(reinterpret_cast<__half2*>(to), __floats2half2_rn(values[0], values[1]));
}

template <int N, typename Table, typename Out>
__global__ void scatter_add(int team_size,
                            Table* dtable,
                            const Out* dout,
                            const std::int32_t* index,
                            std::int64_t rows,
                            std::int64_t width) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    Table* to = dtable + index[row] * width;
    const Out* from = dout + row * width;
    for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
      float values[N];
      load<N>(values, from + i);
      add_atomically(to + i, values);
    }
  }
}

/// partials[chunk][column] = sum of x over the chunk's rows.
template <int N, typename T>
__global__ void __launch_bounds__(kColumnThreads) sum_chunks(float* partials,
                                                             const T* x,
                                                             std::int64_t rows,
                                                             std::int64_t width,
                                                             RowChunks chunks,
                                                             std::int64_t tiles) {
  for (std::int64_t unit = blockIdx.x; unit < tiles * chunks.count; unit += gridDim.x) {
    const std::int64_t chunk = unit / tiles;
    const std::int64_t begin = chunk * chunks.rows_each;
    sum_columns<N, 1>(
        unit % tiles,
        begin,
        min(begin + chunks.rows_each, rows),
        width,
        [&](std::int64_t row, std::int64_t column, float(&sums)[1][N]) {
          float values[N];
          load<N>(values, x + row * width + column);
#pragma unroll
          for (int i = 0; i < N; ++i) {
            sums[0][i] += values[i];
          }
        },
        [&](int, std::int64_t column, float total) { partials[chunk * width + column] = total; });
  }
}

}  // namespace

void gather_rows(const Stream& stream,
                 Array out,
                 ConstArray table,
                 const std::int32_t* index,
                 std::int64_t rows,
                 std::int64_t width) {
  with_type(out.dtype, [&](auto out_type) {
    with_type(table.dtype, [&](auto table_type) {
      using Out = typename decltype(out_type)::Type;
      using Table = typename decltype(table_type)::Type;
      constexpr int kN = kPack<Out, Table>;
      auto* to = data_of<Out>(out);
      const auto* from = data_of<Table>(table);
      const bool packed = width % kN == 0 && aligned(kN, to, from);
      launch_rows(packed ? gather<kN, Out, Table> : gather<1, Out, Table>,
                  stream,
                  rows,
                  packed ? width / kN : width,
                  to,
                  from,
                  index,
                  rows,
                  width);
    });
  });
}

void scatter_add_rows(const Stream& stream,
                      Array dtable,
                      ConstArray dout,
                      const std::int32_t* index,
                      std::int64_t rows,
                      std::int64_t width) {
  with_type(dtable.dtype, [&](auto table_type) {
    with_type(dout.dtype, [&](auto out_type) {
      using Table = typename decltype(table_type)::Type;
      using Out = typename decltype(out_type)::Type;
      constexpr int kN = std::is_same_v<Table, float> ? 1 : 2;
      auto* to = data_of<Table>(dtable);
      const auto* from = data_of<Out>(dout);
      const bool packed = width % kN == 0 && aligned(kN, to, from);
      launch_rows(packed ? scatter_add<kN, Table, Out> : scatter_add<1, Table, Out>,
                  stream,
                  rows,
                  packed ? width / kN : width,
                  to,
                  from,
                  index,
                  rows,
                  width);
    });
  });
}

std::int64_t column_sums_scratch(std::int64_t rows, std::int64_t width) {
  return row_chunks(rows).count * width;
}

void add_column_sums(const Stream& stream,
                     Array total,
                     ConstArray x,
                     std::int64_t rows,
                     std::int64_t width,
                     float* scratch) {
  const RowChunks chunks = row_chunks(rows);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    const auto* from = data_of<T>(x);
    const bool packed = width % kN == 0 && aligned(kN, from);
    const std::int64_t tiles = packed ? column_tiles<kN>(width) : column_tiles<1>(width);
    launch(packed ? sum_chunks<kN, T> : sum_chunks<1, T>,
           tiles * chunks.count,
           kColumnThreads,
           stream,
           scratch,
           from,
           rows,
           width,
           chunks,
           tiles);
  });
  with_type(total.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    launch(add_partial_sums<T>,
           column_tiles<1>(width),
           kColumnThreads,
           stream,
           data_of<T>(total),
           static_cast<T*>(nullptr),
           scratch,
           chunks.count,
           width,
           width);
  });
}

}  // namespace stepsim::cuda
