#include "costmodel/model/op_flops.h"

#include <algorithm>

namespace stepsim {
namespace {

double as_double(std::int64_t value) {
  return static_cast<double>(value);
}

/// Returns the unmasked pairs of positions in fused attention. When a varlen batch gives no
/// window_pairs, every document is taken to have the batch's token-weighted mean length.
double attention_pairs(const Op& op, const BatchShape& batch) {
  const double all = squared_lengths(op, batch);
  const double tokens = rows_of(op, batch);
  if (tokens <= 0 || op.keys > 0) {
    return all;
  }
  double causal = (all + tokens) / 2;
  if (op.window > 0) {
    const double length = all / tokens;
    causal = op.varlen && batch.window_pairs > 0
                 ? batch.window_pairs
                 : tokens / length * causal_pairs(length, as_double(op.window));
  }
  // Without a causal mask the window reaches both ways, and a position meets itself only once.
  return op.causal ? causal : 2 * causal - tokens;
}

/// Returns the number of elements of the dense score matrix [sample][head][query][key].
double dense_scores(const Op& op, const BatchShape& batch) {
  return as_double(op.heads) * squared_lengths(op, batch);
}

bool backward(const Op& op) {
  return op.pass != Pass::Forward;
}

/// Returns the elements that an op moves when it reads and writes whole tensors of `elements`.
double tensor_traffic(const Op& op, double elements, double forward, double backward_times) {
  return elements * (backward(op) ? backward_times : forward);
}

double elements_moved(const Op& op, const BatchShape& batch) {
  const double rows = rows_of(op, batch);
  const double n = as_double(op.n);
  const double k = as_double(op.k);
  const double query_width = as_double(op.heads * op.head_dim);
  const double key_width = as_double(op.kv_heads * op.head_dim);
  const double scores = dense_scores(op, batch);
  switch (op.op_class) {
    case OpClass::Gemm: {
      const double matrices = rows * k + n * k * as_double(op.matrices) + rows * n;
      return op.pass == Pass::Backward ? 2 * matrices : matrices;
    }
    case OpClass::AttentionScores:   // Q, K -> S; dS, Q, K -> dQ, dK
    case OpClass::AttentionContext:  // P, V -> O; dO, P, V -> dP, dV
      return tensor_traffic(op, rows * (query_width + key_width), 1, 2) +
             tensor_traffic(op, scores, 1, op.op_class == OpClass::AttentionScores ? 1 : 2);
    case OpClass::Softmax:  // S -> P; P, dP -> dS
      return tensor_traffic(op, scores, 2, 3);
    case OpClass::Attention:  // Q, K, V -> O; with O, dO -> dQ, dK, dV
      return tensor_traffic(op, rows * 2 * (query_width + key_width), 1, 2);
    case OpClass::Norm:
    case OpClass::Activation:  // x -> y; x, dy -> dx
      return tensor_traffic(op, rows * n, 2, 3);
    case OpClass::Elementwise:  // a, b -> y; dy -> dx
      return tensor_traffic(op, rows * n, 3, 2);
    case OpClass::Embedding:  // row -> y; zero the dense gradient, dy added to its rows
      return tensor_traffic(op, rows * n, 2, 3) + (backward(op) ? n * k : 0);
    case OpClass::Pooling:
      return (rows + as_double(batch.samples)) * n;
    case OpClass::CrossEntropy:  // logits -> log probabilities; those -> gradient
      return rows * n * 2;
    case OpClass::Collate:  // Token ids are 8 bytes, whatever the dtype of the model.
      return rows * 8 / as_double(element_size(op.dtype));
    case OpClass::ZeroGradient:
      return n;
    case OpClass::GradientCopyIn:
    case OpClass::GradientCopyOut:
      return 2 * n;
    case OpClass::Optimizer:  // parameter, gradient, two moments -> parameter, two moments
      return 7 * n;
  }
  return 0;
}

}  // namespace

double squared_lengths(const Op& op, const BatchShape& batch) {
  if (op.keys > 0) {
    return rows_of(op, batch) * as_double(op.keys);
  }
  if (op.rows == RowUnit::Samples) {
    return rows_of(op, batch) * as_double(op.each);
  }
  if (op.varlen) {
    return batch.sum_squares;
  }
  return as_double(batch.samples) * as_double(batch.max_length) * as_double(batch.max_length);
}

double rows_of(const Op& op, const BatchShape& batch) {
  switch (op.rows) {
    case RowUnit::Tokens: {
      const bool unpadded = op.varlen && op.op_class != OpClass::Collate;
      return as_double(unpadded ? batch.useful_tokens : batch.padded_tokens()) * as_double(op.each);
    }
    case RowUnit::Samples:
      return as_double(batch.samples) * as_double(op.each);
    case RowUnit::Elements:
      break;
  }
  return as_double(op.each);
}

double op_flops(const Op& op, const BatchShape& batch) {
  constexpr double kAttentionBackward = 2.5;
  const double rows = rows_of(op, batch);
  const double head_dim = as_double(op.head_dim);
  switch (op.op_class) {
    case OpClass::Gemm:
      return (op.pass == Pass::Backward ? 4 : 2) * rows * as_double(op.n) * as_double(op.k);
    case OpClass::AttentionScores:
    case OpClass::AttentionContext:
      return (backward(op) ? 4 : 2) * head_dim * dense_scores(op, batch);
    case OpClass::Attention:
      return (backward(op) ? kAttentionBackward : 1) * 4 * as_double(op.heads) * head_dim *
             attention_pairs(op, batch);
    case OpClass::Softmax:
      return dense_scores(op, batch);
    default:
      // A tensor of a Blocks model (Elements) may have no work. An op over rows without a width
      // counts one operation a row.
      return op.rows == RowUnit::Elements ? as_double(op.n) * rows
                                          : rows * std::max(as_double(op.n), 1.0);
  }
}

double op_bytes(const Op& op, const BatchShape& batch) {
  return elements_moved(op, batch) * as_double(element_size(op.dtype));
}

double training_flops(const TransformerConfig& config, std::int64_t samples, std::int64_t length) {
  const std::vector<std::int64_t> lengths(
      static_cast<std::size_t>(std::max<std::int64_t>(samples, 0)), length);
  const BatchShape batch = batch_shape(lengths);
  const StepOps ops = step_ops(config);
  double flops = 0;
  for (const auto* list : {&ops.forward, &ops.backward}) {
    for (const Op& op : *list) {
      const bool matrix_product =
          op.op_class == OpClass::Gemm || op.op_class == OpClass::AttentionScores ||
          op.op_class == OpClass::AttentionContext || op.op_class == OpClass::Attention;
      flops += matrix_product ? op_flops(op, batch) : 0;
    }
  }
  return flops;
}

}  // namespace stepsim
