#include "calibrate/cpu/rows.h"

#include <algorithm>

namespace stepsim::cpu {

void gather_rows(float* out,
                 const float* table,
                 const std::int32_t* index,
                 std::int64_t rows,
                 std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(table + index[row] * width, width, out + row * width);
  }
}

void scatter_add_rows(float* dtable,
                      const float* dout,
                      const std::int32_t* index,
                      std::int64_t rows,
                      std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    accumulate(dtable + index[row] * width, dout + row * width, width);
  }
}

void fill_rows(float* y, const float* bias, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(bias, width, y + row * width);
  }
}

void add_column_sums(float* total, const float* x, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    accumulate(total, x + row * width, width);
  }
}

void pool_forward(float* out,
                  const float* x,
                  const float* weight,
                  std::int64_t samples,
                  std::int64_t length,
                  std::int64_t width) {
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    float* __restrict pooled = out + sample * width;
    std::fill_n(pooled, width, 0.0F);
    for (std::int64_t token = sample * length; token < (sample + 1) * length; ++token) {
      const float* __restrict row = x + token * width;
      const float w = weight[token];
      for (std::int64_t i = 0; i < width; ++i) {
        pooled[i] += w * row[i];
      }
    }
  }
}

void pool_backward(float* dx,
                   const float* dout,
                   const float* weight,
                   std::int64_t samples,
                   std::int64_t length,
                   std::int64_t width) {
  for (std::int64_t token = 0; token < samples * length; ++token) {
    scaled_copy(dx + token * width, dout + token / length * width, weight[token], width);
  }
}

void first_token_forward(
    float* out, const float* x, std::int64_t samples, std::int64_t length, std::int64_t width) {
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    std::copy_n(x + sample * length * width, width, out + sample * width);
  }
}

void first_token_backward(
    float* dx, const float* dout, std::int64_t samples, std::int64_t length, std::int64_t width) {
  std::fill_n(dx, samples * length * width, 0.0F);
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    std::copy_n(dout + sample * width, width, dx + sample * length * width);
  }
}

void add_elements(float* __restrict out,
                  const float* __restrict a,
                  const float* __restrict b,
                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = a[i] + b[i];
  }
}

void accumulate(float* __restrict out, const float* __restrict a, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] += a[i];
  }
}

void scale(float* x, float factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] *= factor;
  }
}

void scaled_copy(float* __restrict out,
                 const float* __restrict a,
                 float factor,
                 std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = factor * a[i];
  }
}

}  // namespace stepsim::cpu
