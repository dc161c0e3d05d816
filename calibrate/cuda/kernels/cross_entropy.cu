#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/kernels/pack.cuh"
#include "calibrate/cuda/kernels/softmax_sum.cuh"
#include "calibrate/cuda/kernels/team.cuh"

namespace stepsim::cuda {
namespace {

template <int N, typename T>
__global__ void __launch_bounds__(kMaxThreads) cross_entropy(int team_size,
                                                             float* losses,
                                                             float* saved,
                                                             const T* logits,
                                                             const std::int32_t* targets,
                                                             std::int64_t rows,
                                                             std::int64_t classes) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    const T* data = logits + row * classes;
    SoftmaxSum sum{-INFINITY, 0};
    for (std::int64_t i = team.rank * N; i < classes; i += team.size * N) {
      float values[N];
      load<N>(values, data + i);
      sum = together(sum, softmax_sum_of<N>(values));
    }
    sum = reduce(team, sum, Together{});
    if (team.rank == 0) {
      const std::int32_t target = targets[row];
      const float log_sum = logf(sum.total);
      saved[2 * row] = sum.top;
      saved[2 * row + 1] = log_sum;
      losses[row] = target == kNoTarget ? 0.0F : sum.top - to_float(data[target]) + log_sum;
    }
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kMaxThreads) cross_entropy_gradient(int team_size,
                                                                      T* dlogits,
                                                                      const T* logits,
                                                                      const float* saved,
                                                                      const std::int32_t* targets,
                                                                      float scale,
                                                                      std::int64_t rows,
                                                                      std::int64_t classes) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    const std::int32_t target = targets[row];
    const float top = saved[2 * row];
    const float log_sum = saved[2 * row + 1];
    for (std::int64_t i = team.rank * N; i < classes; i += team.size * N) {
      float values[N] = {};
      if (target != kNoTarget) {
        load<N>(values, logits + row * classes + i);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const float p = expf(values[k] - top - log_sum);
          values[k] = scale * (i + k == target ? p - 1.0F : p);
        }
      }
      store<N>(dlogits + row * classes + i, values);
    }
  }
}

__global__ void sum_in_one_block(int team_size,
                                 float* total,
                                 const float* values,
                                 std::int64_t count) {
  const Team team = team_of(team_size);
  float sum = 0;
  for (std::int64_t i = team.rank; i < count; i += team.size) {
    sum += values[i];
  }
  sum = reduce_sum(team, sum);
  if (team.rank == 0) {
    *total = sum;
  }
}

}  // namespace

void cross_entropy_forward(const Stream& stream,
                           float* losses,
                           float* saved,
                           ConstArray logits,
                           const std::int32_t* targets,
                           std::int64_t rows,
                           std::int64_t classes) {
  with_type(logits.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    const auto* data = data_of<T>(logits);
    const bool packed = classes % kN == 0 && aligned(kN, data);
    launch_rows(packed ? cross_entropy<kN, T> : cross_entropy<1, T>,
                stream,
                rows,
                packed ? classes / kN : classes,
                losses,
                saved,
                data,
                targets,
                rows,
                classes);
  });
}

void cross_entropy_backward(const Stream& stream,
                            Array dlogits,
                            ConstArray logits,
                            const float* saved,
                            const std::int32_t* targets,
                            float scale,
                            std::int64_t rows,
                            std::int64_t classes) {
  expect_dtype(logits.dtype, dlogits);
  with_type(logits.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    auto* to = data_of<T>(dlogits);
    const auto* from = data_of<T>(logits);
    const bool packed = classes % kN == 0 && aligned(kN, to, from);
    launch_rows(packed ? cross_entropy_gradient<kN, T> : cross_entropy_gradient<1, T>,
                stream,
                rows,
                packed ? classes / kN : classes,
                to,
                from,
                saved,
                targets,
                scale,
                rows,
                classes);
  });
}

void sum_floats(const Stream& stream, float* total, const float* values, std::int64_t count) {
  launch(sum_in_one_block, 1, kMaxThreads, stream, kMaxThreads, total, values, count);
}

}  // namespace stepsim::cuda
