#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/units.h"

namespace stepsim {

enum class Dtype { F32, Tf32, Bf16, F16, F64 };
[[nodiscard]] std::int64_t element_size(Dtype dtype);  ///< In bytes; TF32 is stored in 4.
[[nodiscard]] std::string_view name_of(Dtype dtype);   ///< "f32", "tf32", "bf16", "f16", "f64"
/// Accepts "fp32", "float32", … as well. Raises InputError for an unknown name and lists the known
/// ones.
[[nodiscard]] Dtype parse_dtype(std::string_view name);

/// How attention is computed. Dense builds the score matrix over the padded length, Flash is fused
/// over the padded length, and Varlen is fused over the real lengths, so that no op sees padding.
enum class AttentionKind { Dense, Flash, Varlen };
[[nodiscard]] std::string_view name_of(AttentionKind kind);
[[nodiscard]] AttentionKind parse_attention(std::string_view name);

/// Returns the number of elements of a tensor: the product of its sizes, 1 for a scalar.
[[nodiscard]] std::int64_t elements_of(std::span<const std::int64_t> shape);

/// One parameter tensor, in PyTorch registration order.
struct Parameter {
  std::string name;  ///< The name in state_dict().
  std::vector<std::int64_t> shape;
  Dtype dtype = Dtype::F32;
  bool sparse = false;  ///< True: the gradient is sparse (nn.Embedding(sparse=True)).

  bool operator==(const Parameter&) const = default;
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] Bytes bytes() const { return Bytes(elements() * element_size(dtype)); }
};

/// What an op computes. The class decides the form of its cost.
enum class OpClass {
  Gemm,              ///< A linear layer: (tokens x k) times (k x n).
  AttentionScores,   ///< Dense Q K^T, scale and key mask: samples x heads x length x length.
  Softmax,           ///< The softmax over the rows of the score matrix.
  AttentionContext,  ///< Dense P V.
  Attention,         ///< Fused attention (flash, varlen).
  Norm,              ///< Layer norm or RMS norm over n features.
  Activation,        ///< GELU, SwiGLU or ReLU^2 over n features.
  Elementwise,       ///< Residual add, dropout, rotary … over n features.
  Embedding,         ///< Gathers rows of n features from a table of k rows; backward scatters.
  Pooling,           ///< The masked mean over the tokens of a sample, n features.
  CrossEntropy,      ///< Softmax cross entropy over n classes per row.
  Collate,           ///< The host builds the padded batch of token ids.
  ZeroGradient,      ///< Sets n gradient elements to zero.
  GradientCopyIn,    ///< Copies n gradient elements to a bucket and divides by the world size.
  GradientCopyOut,   ///< Copies n elements from a bucket back to the gradients.
  Optimizer          ///< AdamW over n elements.
};
[[nodiscard]] std::string_view name_of(OpClass op_class);     ///< "gemm", "attention_scores", …
[[nodiscard]] OpClass parse_op_class(std::string_view name);  ///< Raises InputError.

/// Which computation of an op. A GEMM's backward is two GEMMs, which are timed and fitted apart.
enum class Pass { Forward, Backward, InputGradient, WeightGradient };
[[nodiscard]] std::string_view name_of(Pass pass);  ///< "forward", "backward", "dgrad", "wgrad"
[[nodiscard]] Pass parse_pass(std::string_view name);

/// What one row of an op's input stands for, and so how the op grows with the batch.
enum class RowUnit {
  Tokens,   ///< One row a token of the batch: a padded one, or a useful one with varlen.
  Samples,  ///< One row a sample, as for a classifier on pooled features.
  Elements  ///< No rows: the op runs over n elements whatever the batch (optimizer, copies).
};
[[nodiscard]] std::string_view name_of(RowUnit rows);  ///< "tokens", "samples", "elements"
[[nodiscard]] RowUnit parse_row_unit(std::string_view name);

/// One operation of a step.
struct Op {
  std::string name;  ///< "layer3.qkv"
  OpClass op_class = OpClass::Gemm;
  Pass pass = Pass::Forward;
  RowUnit rows = RowUnit::Tokens;
  std::int64_t n = 0;  ///< Output features, width, classes or elements.
  std::int64_t k = 0;  ///< Input features, or rows of an embedding table.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = false;
  Dtype dtype = Dtype::F32;
  std::vector<int> completes;  ///< Parameters whose gradients are ready after this backward op.
  bool varlen = false;         ///< True with AttentionKind::Varlen: tokens are the useful ones.
  std::int64_t window = 0;     ///< Fused attention: sliding window in tokens; 0: unlimited.
  /// Rows of each token or sample, as the patches of an image and the experts of a token; with
  /// Elements a Gemm's rows, whatever the batch.
  std::int64_t each = 1;
  std::int64_t keys = 0;      ///< Attention: keys that a query meets; 0: those of its own sequence.
  std::int64_t matrices = 1;  ///< Gemm: weights, one of which each row meets (experts).
  bool biased = false;        ///< Gemm, in a layer of the forward: a bias is added to the product.

  bool operator==(const Op&) const = default;
};

}  // namespace stepsim
