#pragma once

#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// Rows an op runs over: tokens (padded, or the useful ones of a varlen op; Collate always builds
/// the padded batch), samples, or 1 for Elements.
[[nodiscard]] double rows_of(const Op& op, const BatchShape& batch);

/// Floating-point operations of an op, by class, pass and shape.
///
/// GEMM 2 m n k (each of forward, input and weight gradient). Attention 4 h d P forward with P the
/// unmasked pairs of positions: the sum over sequences of L^2, of L (L + 1) / 2 when causal, of
/// causal_pairs(L, w) with a causal window, and of 2 causal_pairs(L, w) - L with a window to both
/// sides; sequences are the B padded ones, or the documents for varlen. 2.5 times that backward.
/// Dense attention: 2 h d B L^2 each for scores and context, twice that backward; masks save
/// nothing. Other classes: one operation per element, since their bytes set their time.
/// Source: FlashAttention's benchmark code, whose causal half is rounded to L^2 / 2.
[[nodiscard]] double op_flops(const Op& op, const BatchShape& batch);

/// Bytes an op has to read and write at least once, in elements of its dtype: a GEMM its three
/// matrices, attention its inputs and outputs (dense: the score matrix too), others their tensors.
[[nodiscard]] double op_bytes(const Op& op, const BatchShape& batch);

}  // namespace stepsim
