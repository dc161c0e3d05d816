#pragma once

#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// Returns the number of rows that an op runs over: tokens (padded ones, or useful ones for a
/// varlen op; Collate always builds the padded batch), samples, or 1 for Elements, times Op::each.
[[nodiscard]] double rows_of(const Op& op, const BatchShape& batch);

/// Returns the pairs of query and key that attention runs over: the sum of the squared lengths of
/// the batch's sequences, or of those that have a fixed length; rows times Op::keys where those are
/// given.
[[nodiscard]] double squared_lengths(const Op& op, const BatchShape& batch);

/// Returns the floating-point operations of an op, by class, pass and shape.
///
/// A GEMM takes 2 m n k for each of forward, input gradient and weight gradient.
/// Fused attention with h heads of size d takes 4 h d P in the forward pass and 2.5 times that in
/// the backward pass. P counts the unmasked pairs of positions; each sequence of length L adds L^2,
/// or L (L + 1) / 2 when causal, causal_pairs(L, w) with a causal window w, and
/// 2 causal_pairs(L, w) - L with a window to both sides. The sequences are the B padded samples, or
/// the documents with varlen.
/// Dense attention takes 2 h d B L^2 each for scores and context, and twice that in the backward
/// pass; masks save nothing.
/// All other classes count one operation per element, since their bytes set their time.
/// Source: FlashAttention's benchmark code, which rounds the causal half to L^2 / 2.
[[nodiscard]] double op_flops(const Op& op, const BatchShape& batch);

/// Returns the bytes that an op must move, reading or writing each tensor once in its dtype: a
/// GEMM's three matrices, attention's inputs and outputs (with dense attention also the score
/// matrix), the tensors of any other op.
[[nodiscard]] double op_bytes(const Op& op, const BatchShape& batch);

}  // namespace stepsim
