#pragma once

#include <cstdint>

#include "calibrate/cpu/device.h"
#include "calibrate/training/kernel_arguments.h"

/// Lookups, pooling and sums over rows of `width` features.
namespace stepsim::cpu {

/// out[row] = table[index[row]].
void gather_rows(const Stream& stream,
                 float* out,
                 const float* table,
                 const std::int32_t* index,
                 std::int64_t rows,
                 std::int64_t width);
/// dtable[index[row]] += dout[row].
void scatter_add_rows(const Stream& stream,
                      float* dtable,
                      const float* dout,
                      const std::int32_t* index,
                      std::int64_t rows,
                      std::int64_t width);

/// total += the sum over rows. Needs no scratch memory.
void add_column_sums(const Stream& stream,
                     float* total,
                     const float* x,
                     std::int64_t rows,
                     std::int64_t width,
                     float* scratch);

/// out[sample] = the mean over the sample's useful tokens (`mean`), or its first token. Sequences
/// are padded; the work is the same for padding as for useful tokens.
void pool_forward(const Stream& stream,
                  float* out,
                  const float* x,
                  const SequenceRows& sequences,
                  std::int64_t width,
                  bool mean);
/// Assigns dx of every row, zero on padding.
void pool_backward(const Stream& stream,
                   float* dx,
                   const float* dout,
                   const SequenceRows& sequences,
                   std::int64_t width,
                   bool mean);

/// out = a + b (+ c, when c is not null).
void add_elements(const Stream& stream,
                  float* out,
                  const float* a,
                  const float* b,
                  const float* c,
                  std::int64_t count);
/// out = factor * a, or out += factor * a.
void scaled_copy(const Stream& stream,
                 float* out,
                 const float* a,
                 float factor,
                 std::int64_t count,
                 Store store);

}  // namespace stepsim::cpu
