#include "calibrate/cuda/kernels/columns.cuh"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/kernels/team.cuh"

namespace stepsim::cuda {
namespace {

/// Added to the variance: PyTorch's default for nn.LayerNorm.
constexpr float kNormEpsilon = 1e-5F;

/// The count of some numbers, their mean, and the sum of squares around it.
struct Moments {
  float count;
  float mean;
  float squares;
};

/// Source: Chan, Golub and LeVeque 1983, the moments of two sets together.
__device__ Moments together(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  if (count == 0) {
    return a;
  }
  const float share = b.count / count;
  const float apart = b.mean - a.mean;
  return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share};
}

template <int N>
__device__ Moments moments_of(const float (&values)[N]) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    sum += values[k];
  }
  const float mean = sum / N;
  float squares = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    squares += (values[k] - mean) * (values[k] - mean);
  }
  return {static_cast<float>(N), mean, squares};
}

/// (mean, 1/deviation) of a row; the RMS norm's mean is 0.
struct Scale {
  float mean;
  float inverse;
};

template <int N, typename T>
__device__ Scale scale_of(const Team& team, const T* x, std::int64_t width, bool rms) {
  const auto divisor = static_cast<float>(width);
  float values[N];
  if (rms) {
    float squares = 0;
    for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
      load<N>(values, x + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        squares += values[k] * values[k];
      }
    }
    return {0, rsqrtf(reduce_sum(team, squares) / divisor + kNormEpsilon)};
  }
  Moments moments{0, 0, 0};
  for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
    load<N>(values, x + i);
    moments = together(moments, moments_of<N>(values));
  }
  moments = reduce(team, moments, Together{});
  return {moments.mean, rsqrtf(moments.squares / divisor + kNormEpsilon)};
}

/// N parameters, or `fallback` where there are none.
template <int N, typename W>
__device__ void load_weights(float (&to)[N], const W* from, std::int64_t i, float fallback) {
  if (from != nullptr) {
    load<N>(to, from + i);
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    to[k] = fallback;
  }
}

template <int N, typename T, typename W>
__global__ void __launch_bounds__(kMaxThreads) normalise(int team_size,
                                                         T* out,
                                                         float* saved,
                                                         const T* x,
                                                         const W* gain,
                                                         const W* bias,
                                                         std::int64_t rows,
                                                         std::int64_t width,
                                                         bool rms) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    const T* from = x + row * width;
    const Scale scale = scale_of<N>(team, from, width, rms);
    if (team.rank == 0) {
      saved[2 * row] = scale.mean;
      saved[2 * row + 1] = scale.inverse;
    }
    for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
      float values[N];
      float gains[N];
      float biases[N];
      load<N>(values, from + i);
      load_weights<N>(gains, gain, i, 1);
      load_weights<N>(biases, bias, i, 0);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        values[k] = (values[k] - scale.mean) * scale.inverse * gains[k] + biases[k];
      }
      store<N>(out + row * width + i, values);
    }
  }
}

/// What a row's gradients have in common.
struct RowGradient {
  float g;    ///< Sum of g = dout * gain.
  float g_x;  ///< Sum of g * xhat.
};

/// g and xhat = (x - mean) / deviation of N elements of a row.
template <int N, typename T, typename W>
__device__ void load_gradient(float (&g)[N],
                              float (&xhat)[N],
                              const T* dout,
                              const T* x,
                              const W* gain,
                              std::int64_t i,
                              const Scale& scale) {
  float gains[N];
  load<N>(g, dout + i);
  load<N>(xhat, x + i);
  load_weights<N>(gains, gain, i, 1);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    g[k] *= gains[k];
    xhat[k] = (xhat[k] - scale.mean) * scale.inverse;
  }
}

/// dx = (g - mean(g) - xhat mean(g xhat)) / deviation, for the RMS norm without mean(g), whose
/// rows have none subtracted.
template <int N, typename T, typename W>
__global__ void __launch_bounds__(kMaxThreads) norm_input_gradient(int team_size,
                                                                   T* dx,
                                                                   const T* dout,
                                                                   const T* x,
                                                                   const float* saved,
                                                                   const W* gain,
                                                                   std::int64_t rows,
                                                                   std::int64_t width,
                                                                   bool rms,
                                                                   bool add) {
  const Team team = team_of(team_size);
  const float inverse = 1.0F / static_cast<float>(width);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    const std::int64_t at = row * width;
    const Scale scale{saved[2 * row], saved[2 * row + 1]};
    float g[N];
    float xhat[N];
    RowGradient sums{0, 0};
    for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
      load_gradient<N>(g, xhat, dout + at, x + at, gain, i, scale);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums.g += g[k];
        sums.g_x += g[k] * xhat[k];
      }
    }
    sums = reduce(team, sums, [](const RowGradient& a, const RowGradient& b) {
      return RowGradient{a.g + b.g, a.g_x + b.g_x};
    });
    const float mean_g = rms ? 0.0F : sums.g * inverse;
    const float mean_g_x = sums.g_x * inverse;
    for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
      float result[N] = {};
      load_gradient<N>(g, xhat, dout + at, x + at, gain, i, scale);
      if (add) {
        load<N>(result, dx + at + i);
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        result[k] += scale.inverse * (g[k] - mean_g - xhat[k] * mean_g_x);
      }
      store<N>(dx + at + i, result);
    }
  }
}

/// partials[chunk] = the gradients of gain (`width` sums of dout xhat) and bias (`width` sums of
/// dout) over the chunk's rows; those of the bias only when `columns` has room for them.
template <int N, typename T>
__global__ void __launch_bounds__(kColumnThreads) norm_weight_gradients(float* partials,
                                                                        const T* dout,
                                                                        const T* x,
                                                                        const float* saved,
                                                                        std::int64_t rows,
                                                                        std::int64_t width,
                                                                        std::int64_t columns,
                                                                        RowChunks chunks,
                                                                        std::int64_t tiles) {
  for (std::int64_t unit = blockIdx.x; unit < tiles * chunks.count; unit += gridDim.x) {
    const std::int64_t chunk = unit / tiles;
    const std::int64_t begin = chunk * chunks.rows_each;
    sum_columns<N, 2>(
        unit % tiles,
        begin,
        min(begin + chunks.rows_each, rows),
        width,
        [&](std::int64_t row, std::int64_t column, float(&sums)[2][N]) {
          const Scale scale{saved[2 * row], saved[2 * row + 1]};
          float d[N];
          float in[N];
          load<N>(d, dout + row * width + column);
          load<N>(in, x + row * width + column);
#pragma unroll
          for (int k = 0; k < N; ++k) {
            sums[0][k] += d[k] * (in[k] - scale.mean) * scale.inverse;
            sums[1][k] += d[k];
          }
        },
        [&](int sum, std::int64_t column, float total) {
          if (sum * width < columns) {
            partials[chunk * columns + sum * width + column] = total;
          }
        });
  }
}

/// Adds the gradients of gain and bias, in two launches.
template <typename T>
void add_weight_gradients(const Stream& stream,
                          const NormGradients& gradients,
                          const T* dout,
                          const T* x,
                          const float* saved,
                          std::int64_t rows,
                          std::int64_t width,
                          float* scratch) {
  constexpr int kN = kPack<T>;
  const RowChunks chunks = row_chunks(rows);
  const bool packed = width % kN == 0 && aligned(kN, dout, x);
  const std::int64_t tiles = packed ? column_tiles<kN>(width) : column_tiles<1>(width);
  const std::int64_t columns = gradients.bias.data == nullptr ? width : 2 * width;
  launch(packed ? norm_weight_gradients<kN, T> : norm_weight_gradients<1, T>,
         tiles * chunks.count,
         kColumnThreads,
         stream,
         scratch,
         dout,
         x,
         saved,
         rows,
         width,
         columns,
         chunks,
         tiles);
  expect_dtype(gradients.gain.dtype, gradients.bias);
  with_type(gradients.gain.dtype, [&](auto type) {
    using G = typename decltype(type)::Type;
    launch(add_partial_sums<G>,
           column_tiles<1>(columns),
           kColumnThreads,
           stream,
           data_of<G>(gradients.gain),
           data_of<G>(gradients.bias),
           scratch,
           chunks.count,
           width,
           columns);
  });
}

/// The dtype of the parameters, or of the activations where there are none.
Dtype weight_dtype(const NormWeights& weights, Dtype activations) {
  if (weights.gain.data == nullptr) {
    return weights.bias.data == nullptr ? activations : weights.bias.dtype;
  }
  expect_dtype(weights.gain.dtype, weights.bias);
  return weights.gain.dtype;
}

}  // namespace

void norm_forward(const Stream& stream,
                  bool rms,
                  Array out,
                  float* saved,
                  ConstArray x,
                  const NormWeights& weights,
                  std::int64_t rows,
                  std::int64_t width) {
  expect_dtype(x.dtype, out);
  with_type(x.dtype, [&](auto type) {
    with_type(weight_dtype(weights, x.dtype), [&](auto weight_type) {
      using T = typename decltype(type)::Type;
      using W = typename decltype(weight_type)::Type;
      constexpr int kN = kPack<T, W>;
      auto* to = data_of<T>(out);
      const auto* from = data_of<T>(x);
      const auto* gain = data_of<W>(weights.gain);
      const auto* bias = data_of<W>(weights.bias);
      const bool packed = width % kN == 0 && aligned(kN, to, from, gain, bias);
      launch_rows(packed ? normalise<kN, T, W> : normalise<1, T, W>,
                  stream,
                  rows,
                  packed ? width / kN : width,
                  to,
                  saved,
                  from,
                  gain,
                  bias,
                  rows,
                  width,
                  rms);
    });
  });
}

void norm_backward(const Stream& stream,
                   bool rms,
                   Array dx,
                   Store store,
                   const NormGradients& gradients,
                   ConstArray dout,
                   ConstArray x,
                   const float* saved,
                   const NormWeights& weights,
                   std::int64_t rows,
                   std::int64_t width,
                   float* scratch) {
  expect_dtype(x.dtype, dx, dout);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    with_type(weight_dtype(weights, x.dtype), [&](auto weight_type) {
      using W = typename decltype(weight_type)::Type;
      constexpr int kN = kPack<T, W>;
      auto* to = data_of<T>(dx);
      const auto* gradient = data_of<T>(dout);
      const auto* from = data_of<T>(x);
      const auto* gain = data_of<W>(weights.gain);
      const bool packed = width % kN == 0 && aligned(kN, to, gradient, from, gain);
      launch_rows(packed ? norm_input_gradient<kN, T, W> : norm_input_gradient<1, T, W>,
                  stream,
                  rows,
                  packed ? width / kN : width,
                  to,
                  gradient,
                  from,
                  saved,
                  gain,
                  rows,
                  width,
                  rms,
                  store == Store::Add);
    });
    if (gradients.gain.data != nullptr) {
      add_weight_gradients(
          stream, gradients, data_of<T>(dout), data_of<T>(x), saved, rows, width, scratch);
    }
  });
}

std::int64_t norm_scratch(std::int64_t rows, std::int64_t width) {
  return 2 * row_chunks(rows).count * width;
}

}  // namespace stepsim::cuda
