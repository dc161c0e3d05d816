#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/kernels/pack.cuh"
#include "calibrate/cuda/kernels/team.cuh"

namespace stepsim::cuda {
namespace {

template <int N, typename T>
__global__ void __launch_bounds__(kMaxThreads)
    sum_row(int team_size, float* sums, const T* x, std::int64_t rows, std::int64_t width) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    float sum = 0;
    for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
      float values[N];
      load<N>(values, x + row * width + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sum += values[k];
      }
    }
    sum = reduce_sum(team, sum);
    if (team.rank == 0) {
      sums[row] = sum;
    }
  }
}

}  // namespace

void row_sums(
    const Stream& stream, float* sums, ConstArray x, std::int64_t rows, std::int64_t width) {
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    const T* const data = data_of<T>(x);
    const bool packs = width % kN == 0 && aligned(kN, data);
    const int n = packs ? kN : 1;
    launch_rows(
        packs ? sum_row<kN, T> : sum_row<1, T>, stream, rows, width / n, sums, data, rows, width);
  });
}

}  // namespace stepsim::cuda
