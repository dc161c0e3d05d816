#pragma once

#include <cstdint>

namespace stepsim::cpu {

/// Lookups, pooling and sums over rows of `width` features.

/// out[row] = table[index[row]].
void gather_rows(float* out,
                 const float* table,
                 const std::int32_t* index,
                 std::int64_t rows,
                 std::int64_t width);
/// dtable[index[row]] += dout[row].
void scatter_add_rows(float* dtable,
                      const float* dout,
                      const std::int32_t* index,
                      std::int64_t rows,
                      std::int64_t width);

/// y[row] = bias for every row, before a product is added to it.
void fill_rows(float* y, const float* bias, std::int64_t rows, std::int64_t width);
/// total += sum over rows.
void add_column_sums(float* total, const float* x, std::int64_t rows, std::int64_t width);

/// out[sample] = sum over positions of weight[sample, position] * x[sample, position]: the masked
/// mean with weight 1/length on useful tokens and 0 on padding.
void pool_forward(float* out,
                  const float* x,
                  const float* weight,
                  std::int64_t samples,
                  std::int64_t length,
                  std::int64_t width);
void pool_backward(float* dx,
                   const float* dout,
                   const float* weight,
                   std::int64_t samples,
                   std::int64_t length,
                   std::int64_t width);
/// out[sample] = x[sample, 0].
void first_token_forward(
    float* out, const float* x, std::int64_t samples, std::int64_t length, std::int64_t width);
void first_token_backward(
    float* dx, const float* dout, std::int64_t samples, std::int64_t length, std::int64_t width);

/// out = a + b.
void add_elements(float* out, const float* a, const float* b, std::int64_t count);
/// out += a.
void accumulate(float* out, const float* a, std::int64_t count);
/// x *= factor.
void scale(float* x, float factor, std::int64_t count);
/// out = factor * a.
void scaled_copy(float* out, const float* a, float factor, std::int64_t count);

}  // namespace stepsim::cpu
