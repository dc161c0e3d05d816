#include "costmodel/memory.h"

#include <cmath>

#include "costmodel/transformer_layout.h"

namespace stepsim {
namespace {

/// Tokens whose activations exist: the padded ones, or the useful ones without padding.
double tokens_of(const TransformerConfig& config, const BatchShape& batch) {
  const bool unpadded = config.attention == AttentionKind::Varlen;
  return static_cast<double>(unpadded ? batch.useful_tokens : batch.padded_tokens());
}

/// Bytes kept by one layer. In 16 bit and with ffn = 4 h this is T h (34 + 5 a s / h) dense and
/// 34 T h fused; the part of each that is a dropout mask (2 T h, a B s^2) stays one byte an element
/// in fp32.
///
/// General widths: six tensors of width h (the inputs of attention, MLP and both norms, Q, the
/// context), K and V of kv_heads * head_dim, and the inner ones before and after the activation. A
/// gated MLP keeps four inner tensors, and these models one mask less: T h (17 + 8 ff / h), which
/// is the 38.25 T h that a NeMo note derives for ff = 2.656 h. Flash attention's statistics (4 T a)
/// are left out.
double layer_bytes(const TransformerConfig& config, const BatchShape& batch) {
  constexpr double kWideTensors = 6;  // Elements a token and feature, beside K, V and the MLP.
  const double tokens = tokens_of(config, batch);
  const auto width = static_cast<double>(config.hidden);
  const auto key_width = static_cast<double>(config.kv_heads * config.head_dim());
  const auto inner = static_cast<double>(config.ffn);
  const auto size = static_cast<double>(element_size(config.dtype));
  const bool gated = config.family == ModelFamily::Llama;
  const double elements = tokens * (kWideTensors * width + 2 * key_width + (gated ? 4 : 2) * inner);
  const double masks = tokens * width * (gated ? 1 : 2);
  double scores = 0;
  if (config.attention == AttentionKind::Dense) {
    const auto length = static_cast<double>(batch.max_length);
    const double entries =
        static_cast<double>(config.heads) * static_cast<double>(batch.samples) * length * length;
    scores = entries * (2 * size + 1);  // Softmax output, its dropout output, and the mask.
  }
  return elements * size + masks + scores;
}

/// Token ids (8 bytes), the mask of the embedding's dropout, and the inputs of the final norm and
/// of the head. Source: Korthikanti et al. 2205.05198, section 4.3.
double outside_bytes(const TransformerConfig& config, const BatchShape& batch) {
  const auto width = static_cast<double>(config.hidden);
  const auto size = static_cast<double>(element_size(config.dtype));
  return tokens_of(config, batch) * (8 + width + 2 * size * width);
}

/// 16-bit models keep the logits in fp32 (4 T V) and the cross entropy adds 6 T V at the peak: its
/// fp32 gradient and the 16-bit one. In fp32 the gradient is the only copy: 4 + 4 T V; fp64 twice.
double logits_bytes(const TransformerConfig& config, const BatchShape& batch) {
  const bool classes_only = !language_model(config.family);
  const double rows = classes_only ? static_cast<double>(batch.samples) : tokens_of(config, batch);
  const auto columns = static_cast<double>(classes_only ? config.classes : config.vocab);
  const auto size = static_cast<double>(element_size(config.dtype));
  return rows * columns * (size < 4 ? 10 : 2 * size);
}

Bytes whole(double bytes) {
  return Bytes(std::llround(bytes));
}

}  // namespace

Bytes MemoryUse::total() const {
  return parameters + gradients + optimizer + buckets + activations + logits;
}

MemoryUse peak_memory(const TransformerConfig& config,
                      const BatchShape& batch,
                      const MemoryOptions& options) {
  std::int64_t elements = 0;
  MemoryUse use;
  for (const auto& parameter : parameters(config)) {
    elements += parameter.elements();
    use.parameters += parameter.bytes();
  }
  use.gradients = use.parameters;
  use.optimizer = whole(static_cast<double>(elements) * (options.optimizer_bytes_per_parameter +
                                                         options.master_bytes_per_parameter));
  use.buckets = options.gradient_as_bucket_view ? Bytes(0) : use.gradients;
  const double layer = layer_bytes(config, batch);
  const auto layers = static_cast<double>(config.layers);
  // Full checkpointing keeps the input of each layer, and one layer in full while it is recomputed.
  const double input = tokens_of(config, batch) * static_cast<double>(config.hidden) *
                       static_cast<double>(element_size(config.dtype));
  const double kept = options.activation_checkpointing ? layers * input + layer : layers * layer;
  use.activations = whole(kept + outside_bytes(config, batch));
  use.logits = whole(logits_bytes(config, batch));
  return use;
}

}  // namespace stepsim
