#include "calibrate/cpu/norm.h"

#include <cmath>
#include <vector>

#include "calibrate/cpu/vector_math.h"

namespace stepsim::cpu {
namespace {

constexpr float kEpsilon = 1e-5F;

/// One row of both norms: out = (x - mean) * scale * gain + bias.
void normalise(float* __restrict out,
               const float* __restrict x,
               float mean,
               float scale,
               NormWeights weights,
               std::int64_t width) {
  const float* __restrict gain = weights.gain;
  const float* __restrict bias = weights.bias;
  if (gain != nullptr && bias != nullptr) {
    for (std::int64_t i = 0; i < width; ++i) {
      out[i] = (x[i] - mean) * scale * gain[i] + bias[i];
    }
  } else if (gain != nullptr) {
    for (std::int64_t i = 0; i < width; ++i) {
      out[i] = (x[i] - mean) * scale * gain[i];
    }
  } else {
    for (std::int64_t i = 0; i < width; ++i) {
      out[i] = (x[i] - mean) * scale;
    }
  }
}

/// One row backward, with g = dout * gain and xhat = (x - mean) * scale:
///   dx = scale * (g - mean(g) - xhat * mean(g xhat)),
/// without the term mean(g) for the RMS norm, which does not subtract a mean.
void row_backward(float* __restrict dx,
                  Store store,
                  NormGradients gradients,
                  float* __restrict g,
                  float* __restrict xhat,
                  const float* __restrict dout,
                  const float* __restrict x,
                  float mean,
                  float scale,
                  bool centered,
                  const float* __restrict gain,
                  std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) {
    xhat[i] = (x[i] - mean) * scale;
  }
  if (gain != nullptr) {
    float* __restrict dgain = gradients.gain;
    for (std::int64_t i = 0; i < width; ++i) {
      g[i] = dout[i] * gain[i];
      dgain[i] += dout[i] * xhat[i];
    }
  } else {
    for (std::int64_t i = 0; i < width; ++i) {
      g[i] = dout[i];
    }
  }
  if (float* __restrict dbias = gradients.bias; dbias != nullptr) {
    for (std::int64_t i = 0; i < width; ++i) {
      dbias[i] += dout[i];
    }
  }
  const float inverse = 1.0F / static_cast<float>(width);
  const float mean_g = centered ? sum(g, width) * inverse : 0.0F;
  const float mean_gx = dot(g, xhat, width) * inverse;
  if (store == Store::Assign) {
    for (std::int64_t i = 0; i < width; ++i) {
      dx[i] = scale * (g[i] - mean_g - xhat[i] * mean_gx);
    }
  } else {
    for (std::int64_t i = 0; i < width; ++i) {
      dx[i] += scale * (g[i] - mean_g - xhat[i] * mean_gx);
    }
  }
}

}  // namespace

void norm_forward(const Stream& /*stream*/,
                  bool rms,
                  float* out,
                  float* saved,
                  const float* x,
                  const NormWeights& weights,
                  std::int64_t rows,
                  std::int64_t width) {
  const float inverse = 1.0F / static_cast<float>(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * width;
    const float mean = rms ? 0.0F : sum(in, width) * inverse;
    const float variance = squares(in, mean, width) * inverse;
    const float scale = 1.0F / std::sqrt(variance + kEpsilon);
    saved[2 * row] = mean;
    saved[2 * row + 1] = scale;
    normalise(out + row * width, in, mean, scale, weights, width);
  }
}

void norm_backward(const Stream& /*stream*/,
                   bool rms,
                   float* dx,
                   Store store,
                   const NormGradients& gradients,
                   const float* dout,
                   const float* x,
                   const float* saved,
                   const NormWeights& weights,
                   std::int64_t rows,
                   std::int64_t width,
                   float* /*scratch*/) {
  // Grows once a thread; a step makes no allocations after its warm-up.
  thread_local std::vector<float> work;
  if (work.size() < static_cast<std::size_t>(2 * width)) {
    work.resize(static_cast<std::size_t>(2 * width));
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * width;
    row_backward(dx + at,
                 store,
                 gradients,
                 work.data(),
                 work.data() + width,
                 dout + at,
                 x + at,
                 saved[2 * row],
                 saved[2 * row + 1],
                 !rms,
                 weights.gain,
                 width);
  }
}

}  // namespace stepsim::cpu
