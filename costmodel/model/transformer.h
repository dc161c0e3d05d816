#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/architecture/op.h"
#include "costmodel/base/units.h"

namespace stepsim {

/// How `stepcal` has libraries run the ops of a step on a GPU: TorchEager as PyTorch calls them
/// without torch.compile, Fused with the fewest kernels. Ops and their names are the same; a
/// profile predicts the training whose kernels it was measured with. See calibrate/cuda/README.md.
enum class KernelChoice { TorchEager, Fused };

/// The layout of modules and parameters. Each value is one published architecture, except Blocks: a
/// plain chain of blocks of one tensor each, which are all equal or are given as a list, and
/// Transformers: what a config.json of transformers describes (costmodel/architecture).
enum class ModelFamily {
  TokenClassifier,
  DistilBert,
  Bert,
  Gpt2,
  Llama,
  Nanochat,
  Blocks,
  Transformers
};

/// One block of a Blocks model: a parameter tensor and the work of its op.
struct TensorBlock {
  std::string name;  ///< The tensor's name in state_dict().
  std::vector<std::int64_t> shape;
  std::int64_t forward = 0;   ///< Relative work: the op takes its share of the forward's time.
  std::int64_t backward = 0;  ///< Relative work between the next tensor's gradient and its own.
  std::optional<Dtype> dtype = {};  ///< Of this tensor; none: that of the model's parameters.

  bool operator==(const TensorBlock&) const = default;
};

/// A transformer, described by its dimensions. Sizes count elements.
struct TransformerConfig {
  std::string name;
  ModelFamily family = ModelFamily::Gpt2;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< Key and value heads; equals heads without grouped queries.
  std::int64_t ffn = 0;       ///< The inner width of the MLP.
  std::int64_t vocab = 0;
  std::int64_t max_length = 0;  ///< The longest input; the rows of a learned position table.
  std::int64_t classes = 0;     ///< Outputs of a classification head; 0: there is no such head.
  bool tied_embeddings = false;
  bool causal = false;
  std::int64_t window = 0;             ///< Sliding attention window in tokens; 0: unlimited.
  Dtype dtype = Dtype::F32;            ///< The dtype of compute.
  Dtype parameter_dtype = Dtype::F32;  ///< The dtype of parameters, gradients and all-reduces.
  AttentionKind attention = AttentionKind::Dense;
  KernelChoice kernels = KernelChoice::TorchEager;
  std::int64_t block_elements = 0;   ///< Blocks: elements of each tensor when all are equal.
  std::vector<TensorBlock> tensors;  ///< Blocks: [layer] in registration order, when they differ.
  std::vector<Parameter> frozen;     ///< Blocks: parameters beside the tensors, without gradients.
  bool sparse_embeddings = false;    ///< True: the token table's gradient is sparse.
  std::string config_json;           ///< Transformers: the text of config.json.
  std::string architecture;          ///< Transformers: the class, "LlamaForCausalLM".
  /// Whether nothing says how many tokens a sample has, so that what it keeps in memory and its
  /// operations are unknown. No file has it: the profile's measurements tell.
  bool tokens_unknown = false;

  [[nodiscard]] std::int64_t head_dim() const { return heads > 0 ? hidden / heads : 0; }
  bool operator==(const TransformerConfig&) const = default;
};

/// The ops of one micro-batch, in execution order.
///
/// Forward, by name (P is "layer3." and so on; each family leaves out what it lacks):
///   embedding, token_type_embedding, position_embedding (Embedding), embedding_add (Elementwise,
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
/// Backward: the reverse of that list. A Gemm becomes InputGradient, then WeightGradient (with the
/// bias gradient); every other op becomes one Backward. AttentionScores and AttentionContext are
/// one Backward op each, which computes both gradients. `completes` lists an op's parameters by
/// descending index; a tied embedding completes at the embedding's backward.
///
/// Details by family:
///   position_embedding, token_type_embedding and embedding_add: Bert (all), DistilBert and Gpt2
///   (no token types); embedding_norm: Bert, DistilBert, Nanochat. qkv is one Gemm in
///   TokenClassifier and Gpt2 and three (q, k, v) elsewhere. rotary: Llama, Nanochat. Attention ops
///   have n = k = 0 and heads, kv_heads, head_dim; norms, elementwise and activations have k = 0.
///   pooling runs over Tokens even where it takes the first token, since its backward fills the
///   gradients of all tokens. A model without a head (Bert, DistilBert, TokenClassifier with
///   classes = 0) has its loss over the `hidden` pooled features; DistilBert then has no
///   pre_classifier. The loss runs over Tokens with n = vocab after lm_head, else over Samples.
///   head_activation has n = hidden over Samples.
struct StepOps {
  std::vector<Op> forward;
  std::vector<Op> backward;
};

/// Returns the layer that an op belongs to, by the name of the op: what stands before its first dot
/// ("layer3" of "layer3.qkv"), or the whole name in a Blocks model, where each block is a layer.
/// Empty: it belongs to none, such as the embedding and the loss.
[[nodiscard]] std::string_view layer_of(const Op& op, ModelFamily family);

/// Returns an op over `elements` that does not depend on the batch: ZeroGradient, GradientCopyIn,
/// GradientCopyOut or Optimizer.
[[nodiscard]] Op elements_op(OpClass op_class, std::int64_t elements, Dtype dtype);
/// Returns the op that builds the padded batch on the host; its cost depends on the padded tokens.
[[nodiscard]] Op collate_op();

/// Returns the model that the text of a config.json describes, as transformers builds it, in the
/// dtype that it states, 16 bit with fused attention. The text alone decides; sizes are for
/// reports.
///
/// Args:
///     architecture: The class to train; empty: the one that the text names.
///     file: What messages call the text.
///
/// Raises:
///     InputError: as described_model() of costmodel/architecture.
[[nodiscard]] TransformerConfig transformers_model(const std::string& config_json,
                                                   const std::string& architecture,
                                                   const std::string& file);

/// Returns the sizes that the text of a model's config.json does not state, so that they are those
/// of its class in transformers: "hidden_size 4096". Files that transformers wrote state them all.
[[nodiscard]] std::vector<std::string> sizes_by_default(const TransformerConfig& config);

/// Returns the parameters that have gradients, in the order of named_parameters().
[[nodiscard]] std::vector<Parameter> parameters(const TransformerConfig& config);
/// Returns the parameters without gradients, as the encoder's positions of Whisper are.
[[nodiscard]] std::vector<Parameter> frozen_parameters(const TransformerConfig& config);
/// Returns the elements of the parameters that have gradients.
[[nodiscard]] std::int64_t parameter_count(const TransformerConfig& config);
[[nodiscard]] StepOps step_ops(const TransformerConfig& config);

/// Returns parameter indices in the order in which `step_ops(config).backward` completes their
/// gradients.
[[nodiscard]] std::vector<int> ready_order(const TransformerConfig& config);

/// Returns the floating-point operations of a forward and backward pass. Reports use them; times do
/// not depend on them.
[[nodiscard]] double training_flops(const TransformerConfig& config,
                                    std::int64_t samples,
                                    std::int64_t length);

/// Raises InputError when the dimensions do not fit together: a size is zero or negative, heads do
/// not divide hidden, …
void check(const TransformerConfig& config);

[[nodiscard]] std::string_view name_of(KernelChoice kernels);  ///< "torch_eager", "fused"
[[nodiscard]] KernelChoice parse_kernels(std::string_view name);
[[nodiscard]] std::string_view name_of(ModelFamily family);
[[nodiscard]] ModelFamily parse_family(std::string_view name);

}  // namespace stepsim
