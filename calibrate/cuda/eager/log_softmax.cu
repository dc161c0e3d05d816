#include "calibrate/cuda/eager/eager.h"
#include "calibrate/cuda/eager/map.cuh"
#include "calibrate/cuda/kernels/softmax_sum.cuh"
#include "calibrate/cuda/kernels/team.cuh"

namespace stepsim::cuda {
namespace {

/// A team's turns over the elements [first, first + count) of arrays that start aligned for N
/// elements: body.template operator()<M>(i) handles [i, i + M), with M = N from the first element
/// where a pack may start, as PyTorch shifts its accesses in rows of a length that is no multiple
/// of N. Source: PyTorch, aten/src/ATen/native/cuda/SoftMax.cu, WriteFpropResultsVectorized.
template <int N, typename Body>
__device__ void in_packs(const Team& team, std::int64_t first, std::int64_t count, Body body) {
  const std::int64_t end = first + count;
  const std::int64_t packs_begin = min(end, (first + N - 1) / N * N);
  const std::int64_t packs_end = max(packs_begin, end / N * N);
  for (std::int64_t i = first + team.rank; i < packs_begin; i += team.size) {
    body.template operator()<1>(i);
  }
  for (std::int64_t i = packs_begin + team.rank * N; i < packs_end; i += team.size * N) {
    body.template operator()<N>(i);
  }
  for (std::int64_t i = packs_end + team.rank; i < end; i += team.size) {
    body.template operator()<1>(i);
  }
}

template <int N>
__global__ void __launch_bounds__(kMaxThreads) log_softmax(
    int team_size, float* out, const float* logits, std::int64_t rows, std::int64_t classes) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    SoftmaxSum sum{-INFINITY, 0};
    in_packs<N>(team, row * classes, classes, [&]<int M>(std::int64_t i) {
      float values[M];
      load<M>(values, logits + i);
      sum = together(sum, softmax_sum_of<M>(values));
    });
    sum = reduce(team, sum, Together{});
    const float shift = sum.top + logf(sum.total);
    in_packs<N>(team, row * classes, classes, [&]<int M>(std::int64_t i) {
      float values[M];
      load<M>(values, logits + i);
#pragma unroll
      for (int k = 0; k < M; ++k) {
        values[k] -= shift;
      }
      store<M>(out + i, values);
    });
  }
}

/// dx = dout - exp(out) sum(dout).
template <int N>
__global__ void __launch_bounds__(kMaxThreads) log_softmax_gradient(int team_size,
                                                                    float* dx,
                                                                    const float* dout,
                                                                    const float* out,
                                                                    std::int64_t rows,
                                                                    std::int64_t classes) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    float sum = 0;
    in_packs<N>(team, row * classes, classes, [&]<int M>(std::int64_t i) {
      float d[M];
      load<M>(d, dout + i);
#pragma unroll
      for (int k = 0; k < M; ++k) {
        sum += d[k];
      }
    });
    sum = reduce_sum(team, sum);
    in_packs<N>(team, row * classes, classes, [&]<int M>(std::int64_t i) {
      float d[M];
      float logs[M];
      load<M>(d, dout + i);
      load<M>(logs, out + i);
#pragma unroll
      for (int k = 0; k < M; ++k) {
        d[k] -= expf(logs[k]) * sum;
      }
      store<M>(dx + i, d);
    });
  }
}

/// One block, as PyTorch's reduction of the loss has.
__global__ void nll_loss(int team_size,
                         float* total,
                         const float* log_probabilities,
                         const std::int32_t* targets,
                         std::int64_t rows,
                         std::int64_t classes) {
  const Team team = team_of(team_size);
  float sum = 0;
  for (std::int64_t row = team.rank; row < rows; row += team.size) {
    if (targets[row] != kNoTarget) {
      sum -= log_probabilities[row * classes + targets[row]];
    }
  }
  sum = reduce_sum(team, sum);
  if (team.rank == 0) {
    *total = sum;
  }
}

/// Writes -scale at the target of every row that has one.
struct NllGradient {
  float* gradient;
  const std::int32_t* targets;
  float scale;
  std::int64_t classes;

  template <int N>
  __device__ void at(std::int64_t row) const {
    static_assert(N == 1);
    if (targets[row] != kNoTarget) {
      gradient[row * classes + targets[row]] = -scale;
    }
  }
};

}  // namespace

std::int64_t log_softmax_scratch(std::int64_t rows, std::int64_t classes) {
  constexpr std::int64_t kN = kPack<float>;
  return 2 * ((rows * classes + kN - 1) / kN * kN);
}

void log_softmax_loss_forward(const Stream& stream,
                              float* total,
                              float* log_probabilities,
                              float* scratch,
                              ConstArray logits,
                              const std::int32_t* targets,
                              std::int64_t rows,
                              std::int64_t classes) {
  const float* wide = scratch;
  if (stored_as(logits.dtype) == Dtype::F32) {
    wide = data_of<float>(logits);
  } else {
    scaled_copy(stream, {scratch, Dtype::F32}, logits, 1.0F, rows * classes, Store::Assign);
  }
  constexpr int kN = kPack<float>;
  const bool packed = aligned(kN, log_probabilities, wide);
  launch_rows(packed ? log_softmax<kN> : log_softmax<1>,
              stream,
              rows,
              packed ? (classes + kN - 1) / kN : classes,
              log_probabilities,
              wide,
              rows,
              classes);
  launch(nll_loss,
         1,
         kMaxThreads,
         stream,
         kMaxThreads,
         total,
         log_probabilities,
         targets,
         rows,
         classes);
}

void log_softmax_loss_backward(const Stream& stream,
                               Array dlogits,
                               const float* log_probabilities,
                               float* scratch,
                               const std::int32_t* targets,
                               float scale,
                               std::int64_t rows,
                               std::int64_t classes) {
  const std::int64_t count = rows * classes;
  float* const of_loss = scratch;
  const bool casts = stored_as(dlogits.dtype) != Dtype::F32;
  float* const wide =
      casts ? scratch + log_softmax_scratch(rows, classes) / 2 : data_of<float>(dlogits);
  set_zero(stream, of_loss, static_cast<std::size_t>(count) * sizeof(float));
  launch_elements<1>(stream, NllGradient{of_loss, targets, scale, classes}, rows, true);
  constexpr int kN = kPack<float>;
  const bool packed = aligned(kN, wide, of_loss, log_probabilities);
  launch_rows(packed ? log_softmax_gradient<kN> : log_softmax_gradient<1>,
              stream,
              rows,
              packed ? (classes + kN - 1) / kN : classes,
              wide,
              of_loss,
              log_probabilities,
              rows,
              classes);
  if (casts) {
    scaled_copy(stream, dlogits, {wide, Dtype::F32}, 1.0F, count, Store::Assign);
  }
}

}  // namespace stepsim::cuda
