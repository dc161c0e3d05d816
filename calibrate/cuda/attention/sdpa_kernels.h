#pragma once

#include <array>
#include <cstdint>

#include "calibrate/cuda/device/device.h"

/// What fused attention needs beside cuDNN's kernels.
namespace stepsim::cuda {

/// Which keys a query of a score matrix [sample][head][query][key] may see.
struct ScoreMask {
  const std::int32_t* lengths = nullptr;  ///< [sample] Useful tokens.
  bool causal = false;
  /// A query sees keys with |query - key| < window, on both sides unless causal; 0 = no window.
  std::int64_t window = 0;
};

/// out[array][i] = offsets[i] * stride[array]: first tokens as first elements of several arrays.
///
/// Args:
///     out: [strides][count], on the device.
///     offsets: [count] tokens, on the device.
void element_offsets(const Stream& stream,
                     std::int64_t* out,
                     const std::int32_t* offsets,
                     std::int64_t count,
                     const std::array<std::int64_t, 4>& strides);

/// Writes a mask that is added to scores, [sample][1][query][key] with mask_stride(length) elements
/// a row: 0 where the query sees the key, else -65 504 (F16's lowest number, with which e^x is 0).
/// The number is not -infinity, so that a query of padding that sees no key does no harm. `visible`
/// has lengths.
///
/// Sources: transformers, src/transformers/masking_utils.py, which makes one mask of lengths,
/// causality and window for a padded batch; PyTorch,
/// aten/src/ATen/native/transformers/attention.cpp, convert_boolean_attn_mask, which makes numbers
/// of it in every layer.
void padding_mask(const Stream& stream,
                  Array mask,
                  const ScoreMask& visible,
                  std::int64_t samples,
                  std::int64_t length);

/// Columns of rows of tokens, of 16-bit elements; pointer, stride and width in multiples of 16
/// bytes.
struct TokenRows {
  void* data = nullptr;
  std::int64_t stride = 0;  ///< Elements.
  std::int64_t width = 0;   ///< Elements; 0 = no array.
};

/// Sets rows sample * length + position to zero where position >= lengths[sample].
void clear_padding(const Stream& stream,
                   const std::array<TokenRows, 3>& arrays,
                   const std::int32_t* lengths,
                   std::int64_t samples,
                   std::int64_t length);

}  // namespace stepsim::cuda
