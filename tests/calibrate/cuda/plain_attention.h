#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/cuda/attention/sdpa.h"

namespace stepsim::cuda {

/// An attention problem on the host, in the memory layout of its shape, in double precision.
struct PlainAttention {
  SdpaShape shape;
  std::vector<std::int32_t> lengths;  ///< [samples] useful tokens, also where nothing is masked.
  std::vector<std::int32_t> offsets;  ///< [samples + 1] first row of each sequence.
  std::vector<double> q, k, v, d_o;   ///< Rows of q_stride, kv_stride, o_stride elements.

  [[nodiscard]] std::int64_t rows() const { return offsets.back(); }  ///< In memory.
};

/// What attention gives; zero on padding.
struct PlainResults {
  std::vector<double> o, dq, dk, dv;
  std::vector<double> statistics;  ///< [row][head] log-sum-exp.
  double largest_score = 0;        ///< Scaled, without sign.

  /// Sums of the magnitudes of the terms of o, dq, dk, dv: an implementation that rounds its terms
  /// with relative error u is off by at most a few u times these. A term of dq and dk is a
  /// gradient of a score, p (dp - sum p dp): its magnitude counts dp, its mean under p, and the sum
  /// do o that stands for that mean.
  struct Sizes {
    std::vector<double> o, dq, dk, dv;
  } sizes;
};

/// A problem of random features in [-1, 1), rounded to the shape's dtype; `lengths` are those of
/// the samples when the shape is masked or packed. Strides of 0 become those of fused rows (q, k, v
/// side by side) and of contiguous ones (o).
[[nodiscard]] PlainAttention plain_attention(SdpaShape shape,
                                             const std::vector<std::int32_t>& lengths,
                                             std::uint64_t seed);

/// softmax(scale q k^T) v and its gradients by the formula, a row of scores at a time.
[[nodiscard]] PlainResults attend(const PlainAttention& problem);

/// The shape of a masked problem whose mask is a tensor.
[[nodiscard]] SdpaShape biased(SdpaShape shape);
/// Returns that mask, [sample][1][query][key] with mask_stride() elements a row.
[[nodiscard]] std::vector<double> mask_of(const PlainAttention& problem);
/// Sets the gradient of padding's outputs to zero, as a loss leaves it. A mask that is a tensor
/// hides keys and no queries.
void clear_padding_gradient(PlainAttention& problem);

}  // namespace stepsim::cuda
