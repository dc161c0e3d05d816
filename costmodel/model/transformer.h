#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/units.h"

namespace stepsim {

enum class Dtype { F32, Tf32, Bf16, F16, F64 };
[[nodiscard]] std::int64_t element_size(Dtype dtype);  ///< Bytes; TF32 is stored as 4.
[[nodiscard]] std::string_view name_of(Dtype dtype);   ///< "f32", "tf32", "bf16", "f16", "f64"
/// Raises InputError for an unknown name, listing the known ones. "fp32", "float32", … are
/// accepted.
[[nodiscard]] Dtype parse_dtype(std::string_view name);

/// How attention is computed: over the padded length with a score matrix, fused over the padded
/// length, or fused over the real lengths (no padding in any op).
enum class AttentionKind { Dense, Flash, Varlen };

/// The layout of modules and parameters; each value is one published architecture.
/// Blocks is none: a chain of blocks of one tensor each, equal ones or those of a list.
enum class ModelFamily { TokenClassifier, DistilBert, Bert, Gpt2, Llama, Nanochat, Blocks };

/// A block of a chain: one parameter tensor and the work that its op has.
struct TensorBlock {
  std::string name;  ///< As state_dict() names the tensor.
  std::vector<std::int64_t> shape;
  std::int64_t forward = 0;   ///< Work in any unit: its share of the sum is its share of the time.
  std::int64_t backward = 0;  ///< Until its gradient is ready, from that of the tensor after it.

  bool operator==(const TensorBlock&) const = default;
};

/// A transformer by its dimensions. Sizes are in elements.
struct TransformerConfig {
  std::string name;
  ModelFamily family = ModelFamily::Gpt2;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< Key and value heads; equal to heads without grouped queries.
  std::int64_t ffn = 0;       ///< Inner width of the MLP.
  std::int64_t vocab = 0;
  std::int64_t max_length = 0;  ///< Positions the model accepts; rows of a learned position table.
  std::int64_t classes = 0;     ///< Outputs of a classification head (TokenClassifier, DistilBert).
  bool tied_embeddings = false;
  bool causal = false;
  std::int64_t window = 0;             ///< Sliding attention window in tokens; 0 = unlimited.
  Dtype dtype = Dtype::F32;            ///< Compute dtype.
  Dtype parameter_dtype = Dtype::F32;  ///< Dtype of parameters and gradients (all-reduce volume).
  AttentionKind attention = AttentionKind::Dense;
  std::int64_t block_elements = 0;   ///< Blocks: elements of a block's tensor.
  std::vector<TensorBlock> tensors;  ///< Blocks that differ, one a layer, in registration order.
  bool sparse_embeddings = false;    ///< The token table's gradient is sparse.

  [[nodiscard]] std::int64_t head_dim() const { return heads > 0 ? hidden / heads : 0; }
  bool operator==(const TransformerConfig&) const = default;
};

/// One parameter tensor, in PyTorch registration order.
struct Parameter {
  std::string name;  ///< As state_dict() names it.
  std::vector<std::int64_t> shape;
  Dtype dtype = Dtype::F32;
  bool sparse = false;  ///< Its gradient is sparse (nn.Embedding(sparse=True)).

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] Bytes bytes() const { return Bytes(elements() * element_size(dtype)); }
};

/// What an operation computes; the class decides the form of its cost.
enum class OpClass {
  Gemm,              ///< Linear layer: tokens x k times k x n.
  AttentionScores,   ///< Q K^T, scale and key mask, dense: samples x heads x length x length.
  Softmax,           ///< Rows of the score matrix.
  AttentionContext,  ///< P V, dense.
  Attention,         ///< Fused attention (flash, varlen).
  Norm,              ///< Layer norm or RMS norm over n features.
  Activation,        ///< GELU, SwiGLU, ReLU^2 over n features.
  Elementwise,       ///< Residual add, dropout, rotary … over n features.
  Embedding,         ///< Gather rows of n features from k rows; backward scatters.
  Pooling,           ///< Masked mean over the tokens of a sample, n features.
  CrossEntropy,      ///< Softmax cross entropy over n classes per row.
  Collate,           ///< Host: build the padded batch (token ids).
  ZeroGradient,      ///< Set n gradient elements to zero.
  GradientCopyIn,    ///< grad -> bucket, divided by the world size, n elements.
  GradientCopyOut,   ///< bucket -> grad, n elements.
  Optimizer          ///< AdamW over n elements.
};
[[nodiscard]] std::string_view name_of(OpClass op_class);     ///< "gemm", "attention_scores", …
[[nodiscard]] OpClass parse_op_class(std::string_view name);  ///< Raises InputError.

/// Which computation of an op: a GEMM's backward is two GEMMs, timed and fitted apart.
enum class Pass { Forward, Backward, InputGradient, WeightGradient };
[[nodiscard]] std::string_view name_of(Pass pass);  ///< "forward", "backward", "dgrad", "wgrad"
[[nodiscard]] Pass parse_pass(std::string_view name);

/// What an op runs over, beside its own sizes.
enum class Rows {
  Tokens,   ///< Every token of the batch (padded, or useful ones for varlen).
  Samples,  ///< One row a sample (a classifier on pooled features).
  Elements  ///< Independent of the batch: n elements (optimizer, copies).
};
[[nodiscard]] std::string_view name_of(Rows rows);  ///< "tokens", "samples", "elements"
[[nodiscard]] Rows parse_rows(std::string_view name);

/// One operation of a step.
struct Op {
  std::string name;  ///< "layer3.qkv"
  OpClass op_class = OpClass::Gemm;
  Pass pass = Pass::Forward;
  Rows rows = Rows::Tokens;
  std::int64_t n = 0;  ///< Output features, width, classes or elements.
  std::int64_t k = 0;  ///< Input features, or rows of an embedding table.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = false;
  Dtype dtype = Dtype::F32;
  std::vector<int> completes;  ///< Parameters whose gradient is ready after this (backward) op.
  bool varlen = false;         ///< AttentionKind::Varlen: tokens are the useful ones, unpadded.
  std::int64_t window = 0;     ///< Fused attention: sliding window in tokens; 0 = unlimited.

  bool operator==(const Op&) const = default;
};

/// The ops of one micro-batch, in execution order.
///
/// Forward, by name (P = "layer3." and so on; a part that a family lacks is left out):
///   embedding, position_embedding, token_type_embedding (Embedding), embedding_add (Elementwise,
///   one for all sums), embedding_norm;
///   per layer  P attention_norm (before attention in TokenClassifier, Gpt2, Llama, Nanochat),
///   P qkv, or P q, P k, P v (Gemm), P rotary (Elementwise, n = (heads + kv_heads) * head_dim),
///   P scores, P softmax, P context (Dense) or P attention (Flash, Varlen), P attention_output,
///   P attention_residual, P attention_norm (here in Bert, DistilBert), P mlp_norm (pre-norm
///   families), P mlp_gate (Llama), P mlp_up, P activation (n = ffn), P mlp_down, P mlp_residual,
///   P mlp_norm (here in Bert, DistilBert);
///   final_norm (Gpt2, Llama, Nanochat); lm_head (Gemm over tokens), or pooling (masked mean in
///   TokenClassifier, first token in Bert and DistilBert), pooler (Bert) or pre_classifier
///   (DistilBert) with head_activation (tanh, ReLU), classifier (Gemm over samples, when classes >
///   0); loss (CrossEntropy).
/// Backward: the reverse of that list. A Gemm is InputGradient, then WeightGradient (bias gradient
/// included); every other op one Backward. completes lists an op's parameters in descending index;
/// a tied embedding completes at the embedding's backward. Gemm of attention scores and context
/// are one Backward op each (both gradients).
///
/// Readings where the list leaves a choice:
///   position_embedding, token_type_embedding and embedding_add: Bert (all), DistilBert and Gpt2
///   (no token types); embedding_norm: Bert, DistilBert, Nanochat. qkv is one Gemm in
///   TokenClassifier and Gpt2, three (q, k, v) elsewhere. rotary: Llama, Nanochat. Attention ops
///   have n = k = 0 and heads, kv_heads, head_dim; norms, elementwise and activations have k = 0.
///   pooling runs over Tokens also where it takes the first one (its backward fills the gradient
///   of all tokens). A family without a head (Bert, DistilBert, TokenClassifier with classes = 0)
///   has its loss over the `hidden` pooled features; DistilBert then has no pre_classifier. The
///   loss runs over Tokens with n = vocab after lm_head, else over Samples. head_activation has
///   n = hidden over Samples.
struct StepOps {
  std::vector<Op> forward;
  std::vector<Op> backward;
};

/// An op over `elements` independent of the batch: ZeroGradient, GradientCopyIn/Out, Optimizer.
[[nodiscard]] Op elements_op(OpClass op_class, std::int64_t elements, Dtype dtype);
/// Building the padded batch on the host; costs by padded tokens.
[[nodiscard]] Op collate_op();

[[nodiscard]] std::vector<Parameter> parameters(const TransformerConfig& config);
[[nodiscard]] std::int64_t parameter_count(const TransformerConfig& config);
[[nodiscard]] StepOps step_ops(const TransformerConfig& config);

/// Parameter indices in the order their gradients become ready in `step_ops(config).backward`.
[[nodiscard]] std::vector<int> ready_order(const TransformerConfig& config);

/// Floating-point operations of a forward and backward pass, for reports (not for time).
[[nodiscard]] double training_flops(const TransformerConfig& config,
                                    std::int64_t samples,
                                    std::int64_t length);

/// Raises InputError: a size that is zero or negative, heads that do not divide hidden, …
void check(const TransformerConfig& config);

[[nodiscard]] std::string_view name_of(AttentionKind kind);
[[nodiscard]] AttentionKind parse_attention(std::string_view name);
[[nodiscard]] std::string_view name_of(ModelFamily family);
[[nodiscard]] ModelFamily parse_family(std::string_view name);

}  // namespace stepsim
