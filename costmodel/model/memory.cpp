#include "costmodel/model/memory.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/op_flops.h"
#include "costmodel/model/transformer_layout.h"

namespace stepsim {
namespace {

/// Returns the number of tokens that have activations: all padded ones, or with varlen attention
/// only the useful ones.
double tokens_of(const TransformerConfig& config, const BatchShape& batch) {
  const bool unpadded = config.attention == AttentionKind::Varlen;
  return static_cast<double>(unpadded ? batch.useful_tokens : batch.padded_tokens());
}

/// Returns the tokens of a batch in these layers, which may see a length of their own.
double tokens_of(const TransformerConfig& config,
                 const LayerStack& stack,
                 const BatchShape& batch) {
  return stack.tokens > 0 ? static_cast<double>(batch.samples * stack.tokens)
                          : tokens_of(config, batch);
}

/// Returns how many elements of the compute dtype one token keeps in a layer: the inputs of
/// attention and MLP have width h, Q and the context their own; K and V have width kv_heads *
/// head_dim; the MLP's inner tensors before and after the activation have width ffn (four in a
/// gated MLP).
double computed_elements(const LayerStack& stack) {
  const double inner_tensors = stack.gated ? 4 : 2;
  return 2 * static_cast<double>(stack.hidden + stack.query_width) +
         2 * static_cast<double>(stack.key_width) + inner_tensors * static_cast<double>(stack.ffn);
}

/// A Llama whose norms are written out, as eager PyTorch runs it.
bool eager_llama(const TransformerConfig& config, const LayerStack& stack) {
  return stack.gated && config.kernels == KernelChoice::TorchEager;
}

/// Returns the bytes that a token keeps in a layer of such a model, without scores. Each norm keeps
/// its input in fp32, the normalized rows, and a root mean square; where the norms compute in
/// another dtype than the products, these take copies: under autocast each product its own. Q and
/// the context have width h, K and V that of their heads, and the MLP four tensors of width ffn. A
/// fused attention keeps a sum a head. These are the tensors that autograd saves in transformers
/// 5.24 under PyTorch 2.15.
double eager_llama_bytes(const TransformerConfig& config, const LayerStack& stack) {
  constexpr double kProductsOfNorms = 5;  // Q, K, V, gate and up.
  const auto width = static_cast<double>(stack.hidden);
  const auto size = static_cast<double>(element_size(config.dtype));
  const double norm_size = std::max(4.0, size);
  double norms = 0;
  if (autocast(config)) {
    norms = width * (4 * norm_size + kProductsOfNorms * size);
  } else {
    // What is normalized is kept in the norm's dtype, and once more where it is cast back.
    norms = width * (size < norm_size ? 2 * norm_size + 4 * size : 6 * size);
  }
  const double fused_sums =
      config.attention == AttentionKind::Dense ? 0 : 4 * static_cast<double>(stack.heads);
  return norms +
         size * (2 * static_cast<double>(stack.query_width) +
                 2 * static_cast<double>(stack.key_width) + 4 * static_cast<double>(stack.ffn)) +
         2 * norm_size + fused_sums;
}

/// Returns the bytes that one layer keeps. The inputs of both norms are 16 bit in a 16-bit
/// model and fp32 under autocast. With ffn = 4 h this is 34 T h (36 T h under autocast); a gated
/// MLP has one mask less: T h (17 + 8 ff / h), which is the 38.25 T h that a NeMo note derives for
/// ff = 2.656 h. Masks stay one byte an element in fp32. Scores, dense: the softmax output, its
/// 16-bit copy or dropout output, and the mask. Flash attention's statistics (4 T a) are left out.
double layer_bytes(const TransformerConfig& config,
                   const LayerStack& stack,
                   const BatchShape& batch) {
  const double tokens = tokens_of(config, stack, batch);
  const auto width = static_cast<double>(stack.hidden);
  const auto size = static_cast<double>(element_size(config.dtype));
  const bool cast = autocast(config);
  const double norm_inputs = 2 * width * (cast ? 4 : size);
  const double gated_masks = stack.gated ? 1 : 2;
  const double masks = cast ? 0 : gated_masks * width;
  double scores = 0;
  if (config.attention == AttentionKind::Dense) {
    const auto length = static_cast<double>(stack.tokens > 0 ? stack.tokens : batch.max_length);
    const double entries =
        static_cast<double>(stack.heads) * static_cast<double>(batch.samples) * length * length;
    scores = entries * (cast ? 4 + size : 2 * size + 1);
  }
  if (eager_llama(config, stack)) {
    return tokens * eager_llama_bytes(config, stack) + scores;
  }
  return tokens * (computed_elements(stack) * size + norm_inputs + masks) + scores;
}

/// Returns the bytes kept outside the layers: token ids (8 bytes each), the mask of the embedding's
/// dropout, and the inputs of the final norm and of the head. Under autocast the norm's input is
/// fp32 and there is no dropout. Source: Korthikanti et al. 2205.05198, section 4.3.
double outside_bytes(const TransformerConfig& config,
                     const LayerStack& last,
                     const BatchShape& batch) {
  const double tokens = tokens_of(config, last, batch);
  const auto width = static_cast<double>(last.hidden);
  const auto size = static_cast<double>(element_size(config.dtype));
  if (eager_llama(config, last)) {
    const double norm_size = std::max(4.0, size);
    const double copies = autocast(config) ? norm_size + size : 2 * size;
    return tokens * (2 * 8 + (norm_size + copies) * width + norm_size);
  }
  const double per_feature = autocast(config) ? 4 + size : 1 + 2 * size;
  return tokens * (8 + per_feature * width);
}

/// Returns the bytes of the linear layers' weights in the compute dtype. Autocast makes these
/// copies in the forward pass, and they live until the backward pass has used them.
double weight_copy_bytes(const TransformerConfig& config) {
  if (!autocast(config)) {
    return 0;
  }
  double elements = 0;
  for (const Op& op : step_ops(config).forward) {
    if (op.op_class == OpClass::Gemm) {
      elements +=
          static_cast<double>(op.n) * static_cast<double>(op.k) * static_cast<double>(op.matrices);
    }
  }
  return elements * static_cast<double>(element_size(config.dtype));
}

/// Returns the layer of a tensor: "model.layers.3" for "model.layers.3.mlp.up_proj.weight". A
/// tensor outside the layers counts as a layer of its own.
std::string layer_of_tensor(const std::string& name) {
  std::size_t begin = 0;
  for (std::size_t end = name.find('.'); end != std::string::npos; end = name.find('.', begin)) {
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
      return name.substr(0, end);
    }
    begin = end + 1;
  }
  return name;
}

/// Returns the size of a working bucket, which holds at least the largest tensor, since no tensor
/// is split.
Bytes working_bucket(const std::vector<Parameter>& parameters, Bytes largest) {
  Bytes all;
  for (const auto& parameter : parameters) {
    all += parameter.bytes();
    largest = std::max(largest, parameter.bytes());
  }
  return std::min(all, largest);
}

/// Returns the bytes that one rank keeps of `elements` elements of `each` bytes sharded over
/// `ranks`.
Bytes shard(std::int64_t elements, double each, int ranks) {
  const std::int64_t kept = elements / ranks + (elements % ranks != 0 ? 1 : 0);
  return Bytes(std::llround(static_cast<double>(kept) * each));
}

/// Returns the bytes of the logits and their gradients. 16-bit models keep the logits in fp32
/// (4 T V), and cross entropy adds 6 T V at the peak: its fp32 gradient and the 16-bit one. In fp32
/// the gradient is the only copy, which gives (4 + 4) T V; fp64 takes twice that. Of a Llama, whose
/// loss casts the logits first, an H100 held 12 T V in 16 bit: log-probabilities, their gradient
/// and that of the logits in fp32.
double logits_bytes(const TransformerConfig& config,
                    bool gated_in_eager,
                    bool in_own_dtype,
                    double logits) {
  const auto size = static_cast<double>(element_size(config.dtype));
  if (in_own_dtype && size < 4) {
    constexpr double kCopies = 4;  // Logits, log-probabilities, and the gradients of both.
    return logits * kCopies * size;
  }
  const double in_16_bit = gated_in_eager ? 12 : 10;
  return logits * (size < 4 ? in_16_bit : 2 * size);
}

/// The layers of a family whose layers are all alike.
LayerStack only_stack(const TransformerConfig& config) {
  return {config.layers,
          config.hidden,
          config.heads,
          config.kv_heads * config.head_dim(),
          config.ffn,
          config.family == ModelFamily::Llama,
          0,
          config.hidden};
}

/// Returns the bytes of an op's output in the dtype of compute. Fused attention also keeps a sum of
/// 4 bytes for each head.
double output_bytes(const Op& op, const BatchShape& batch) {
  const auto size = static_cast<double>(element_size(op.dtype));
  const double rows = rows_of(op, batch);
  if (op.op_class == OpClass::Attention) {
    return rows * static_cast<double>(op.heads) * (static_cast<double>(op.head_dim) * size + 4);
  }
  return rows * static_cast<double>(op.n) * size;
}

Bytes whole(double bytes) {
  return Bytes(std::llround(bytes));
}

}  // namespace

Bytes MemoryUse::total() const {
  return parameters + gradients + optimizer + buckets + gathered + weight_copies + activations +
         logits + fixed;
}

MemoryUse state_memory(std::int64_t elements, Dtype parameter_dtype, const MemoryOptions& options) {
  const int fewest =
      std::min({options.optimizer_shards, options.gradient_shards, options.parameter_shards});
  if (fewest < 1) {
    throw InputError("{} ranks; expected at least 1", fewest);
  }
  const auto size = static_cast<double>(element_size(parameter_dtype));
  const double optimizer = options.optimizer_on_host ? 0
                                                     : options.optimizer_bytes_per_parameter +
                                                           options.master_bytes_per_parameter;
  MemoryUse use;
  use.optimizer = shard(elements, optimizer, options.optimizer_shards);
  use.gradients = shard(elements, size, options.gradient_shards);
  use.parameters = shard(elements, size, options.parameter_shards);
  return use;
}

bool states_activations(const TransformerConfig& config) {
  return config.family != ModelFamily::Blocks && !config.tokens_unknown;
}

bool has_own_tokens(const TransformerConfig& config) {
  return config.family == ModelFamily::Transformers &&
         std::ranges::all_of(described(config).stacks,
                             [](const LayerStack& stack) { return stack.tokens > 0; });
}

bool autocast(const TransformerConfig& config) {
  return element_size(config.dtype) == 2 && element_size(config.parameter_dtype) == 4;
}

Bytes largest_layer(const TransformerConfig& config) {
  std::map<std::string, Bytes> layers;
  Bytes largest;
  for (const auto& parameter : parameters(config)) {
    Bytes& layer = layers[layer_of_tensor(parameter.name)];
    layer += parameter.bytes();
    largest = std::max(largest, layer);
  }
  return largest;
}

PeakMemory::PeakMemory(TransformerConfig config, const MemoryOptions& options)
    : config_(std::move(config)),
      checkpointing_(options.checkpointing),
      loss_in_own_dtype_(options.loss_in_own_dtype),
      moments_(options.moments) {
  read_layers();
  read_kept_ops();
  const std::vector<Parameter> tensors = parameters(config_);
  std::int64_t elements = 0;
  Bytes of_other_types;  // What tensors of other types take beside those of the model's.
  for (const auto& tensor : tensors) {
    elements += tensor.elements();
    of_other_types +=
        tensor.bytes() - Bytes(tensor.elements() * element_size(config_.parameter_dtype));
  }
  constant_ = state_memory(elements, config_.parameter_dtype, options);
  constant_.gradients += Bytes(of_other_types.value() / options.gradient_shards);
  frozen_ = of_other_types;
  for (const Parameter& parameter : frozen_parameters(config_)) {
    frozen_ += parameter.bytes();
  }
  frozen_ = Bytes(frozen_.value() / options.parameter_shards);
  constant_.parameters += frozen_;
  if (options.working_bucket) {
    constant_.buckets = working_bucket(tensors, *options.working_bucket);
  } else if (!options.gradient_as_bucket_view) {
    constant_.buckets = constant_.gradients;
  }
  constant_.gathered = options.gathered;
  constant_.fixed = options.fixed;
  if (options.casts_weights) {
    constant_.weight_copies = whole(weight_copy_bytes(config_));
  } else if (autocast(config_)) {
    // What computes on parameters that were gathered in 16 bit keeps what a model of 16 bit keeps.
    config_.parameter_dtype = config_.dtype;
  }
}

void PeakMemory::read_layers() {
  if (config_.family != ModelFamily::Transformers) {
    const bool predicts_tokens = language_model(config_.family);
    stacks_ = {only_stack(config_)};
    logit_rows_ = predicts_tokens ? RowUnit::Tokens : RowUnit::Samples;
    logit_columns_ = predicts_tokens ? config_.vocab : config_.classes;
    return;
  }
  DescribedModel model = described(config_);
  stacks_ = std::move(model.stacks);
  for (LayerStack& stack : stacks_) {
    stack.query_width = stack.query_width > 0 ? stack.query_width : stack.hidden;
  }
  const Op& loss = model.forward.back();
  logit_rows_ = loss.rows;
  logit_columns_ = loss.n;
}

void PeakMemory::read_kept_ops() {
  std::int64_t index = 0;
  for (const LayerStack& stack : stacks_) {
    std::int64_t& checkpointed = checkpointed_.emplace_back(0);
    for (std::int64_t layer = 0; layer < stack.layers; ++layer) {
      checkpointed += checkpointing_.checkpoints(index++) ? 1 : 0;
    }
  }
  if (checkpointing_.kind != CheckpointKind::Ops) {
    return;
  }
  std::map<std::string, std::vector<Op>, std::less<>> layers;
  for (const Op& op : step_ops(config_).forward) {
    if (const std::string_view layer = layer_of(op, config_.family); !layer.empty()) {
      layers[std::string(layer)].push_back(op);
    }
  }
  for (const auto& [name, layer] : layers) {
    for (Op op : kept_ops(checkpointing_, layer)) {
      op.name.clear();
      const auto known = std::ranges::find(kept_, op, &std::pair<Op, double>::first);
      if (known == kept_.end()) {
        kept_.emplace_back(op, 1);
      } else {
        ++known->second;
      }
    }
  }
}

MemoryUse PeakMemory::at(const BatchShape& batch) const {
  if (moments_.empty()) {
    const MemoryUse at_loss = with_batch(constant_, batch, 1, 1);
    if (checkpointing_.kind == CheckpointKind::None) {
      return at_loss;
    }
    const MemoryUse again = with_batch(constant_, batch, 1, 0);
    return again.total() > at_loss.total() ? again : at_loss;
  }
  MemoryUse most;
  for (const MemoryMoment& moment : moments_) {
    MemoryUse use = constant_;
    use.parameters = moment.parameters + frozen_;
    use.gradients = moment.gradients;
    use.buckets = moment.buckets;
    use.gathered = moment.gathered;
    use = with_batch(use, batch, moment.layers, moment.loss);
    most = use.total() > most.total() ? use : most;
  }
  return most;
}

MemoryUse PeakMemory::with_batch(MemoryUse use,
                                 const BatchShape& batch,
                                 double share,
                                 double loss) const {
  if (!states_activations(config_)) {
    return use;
  }
  double kept = 0;
  double again = 0;  // What the layer has that is being computed again, beside what it kept.
  double of_ops = 0;
  for (const auto& [op, count] : kept_) {
    of_ops += count * output_bytes(op, batch);
  }
  kept += share * of_ops;
  for (std::size_t i = 0; i < stacks_.size(); ++i) {
    const LayerStack& stack = stacks_[i];
    const double layer = layer_bytes(config_, stack, batch);
    const double input = tokens_of(config_, stack, batch) * static_cast<double>(stack.hidden) *
                         (autocast(config_) ? 4 : static_cast<double>(element_size(config_.dtype)));
    const auto checkpointed = static_cast<double>(checkpointed_[i]);
    kept +=
        share * (checkpointed * input + (static_cast<double>(stack.layers) - checkpointed) * layer);
    again = std::max(again, checkpointed > 0 ? layer : 0);
  }
  if (!kept_.empty()) {
    const auto layers = static_cast<double>(sum_of(checkpointed_, std::identity()));
    again = std::max(0.0, again - of_ops / layers);
  }
  const LayerStack& last = stacks_.back();
  use.activations = whole(kept + (loss > 0 ? 0 : again) + outside_bytes(config_, last, batch));
  const double rows = logit_rows_ == RowUnit::Samples ? static_cast<double>(batch.samples)
                                                      : tokens_of(config_, batch);
  use.logits = whole(loss * logits_bytes(config_,
                                         eager_llama(config_, last),
                                         loss_in_own_dtype_,
                                         rows * static_cast<double>(logit_columns_)));
  return use;
}

std::int64_t largest_token_budget(const TransformerConfig& config,
                                  const MemoryOptions& options,
                                  Bytes capacity,
                                  std::int64_t length) {
  if (length < 1) {
    throw InputError("length {}; expected at least 1", length);
  }
  if (!states_activations(config)) {
    throw InputError("model {}: nothing says what a batch keeps in memory", printable(config.name));
  }
  const PeakMemory peak(config, options);
  const auto fits = [&](std::int64_t samples) {
    const std::int64_t tokens = samples * length;
    const double squares = static_cast<double>(tokens) * static_cast<double>(length);
    return peak.at({samples, length, tokens, squares}).total() <= capacity;
  };
  std::int64_t most = 0;      // The most samples known to fit; 0 when not even one does.
  std::int64_t too_many = 1;  // The fewest samples known not to fit, once the loop has ended.
  while (fits(too_many)) {
    most = too_many;
    too_many *= 2;
  }
  while (too_many - most > 1) {
    const std::int64_t middle = most + (too_many - most) / 2;
    (fits(middle) ? most : too_many) = middle;
  }
  return most * length;
}

}  // namespace stepsim
