#include "costmodel/memory.h"

#include <doctest/doctest.h>

#include "costmodel/model_presets.h"

using namespace stepsim;

namespace {

/// Activations of one layer: the difference that one more layer makes.
std::int64_t layer_bytes(TransformerConfig config, const BatchShape& batch) {
  config.layers = 1;
  const auto one = peak_memory(config, batch, {}).activations;
  config.layers = 2;
  return (peak_memory(config, batch, {}).activations - one).value();
}

TransformerConfig half_precision(std::string_view preset) {
  TransformerConfig config = model_preset(preset);
  config.dtype = Dtype::Bf16;
  return config;
}

/// 4 samples padded to 512: T = 2048; 1500 useful tokens.
constexpr BatchShape kBatch{4, 512, 1500, 0};
constexpr std::int64_t kTokens = 2048;

}  // namespace

TEST_CASE("a layer in 16 bit keeps T h (34 + 5 a s / h) dense and 34 T h fused") {
  auto config = half_precision("bert-large");  // h = 1024, a = 16
  CHECK(layer_bytes(config, kBatch) == kTokens * 1024 * 34 + kTokens * 5 * 16 * 512);
  config.attention = AttentionKind::Flash;
  CHECK(layer_bytes(config, kBatch) == kTokens * 1024 * 34);
  config.attention = AttentionKind::Varlen;
  CHECK(layer_bytes(config, kBatch) == kBatch.useful_tokens * 1024 * 34);
}

TEST_CASE("in fp32 all doubles but the masks") {
  auto config = model_preset("bert-large");
  CHECK(layer_bytes(config, kBatch) == kTokens * 1024 * 66 + kTokens * 9 * 16 * 512);
}

TEST_CASE("a gated MLP keeps T h (17 + 8 ff / h)") {
  const auto config = model_preset("llama2-7b");
  CHECK(layer_bytes(config, kBatch) == kTokens * (17 * 4096 + 8 * 11008));
}

TEST_CASE("grouped queries keep narrower keys and values") {
  auto grouped = model_preset("llama3-8b");
  auto whole = grouped;
  whole.kv_heads = whole.heads;
  // 24 of 32 heads of 128 less, for K and V, 2 bytes each.
  CHECK(layer_bytes(whole, kBatch) - layer_bytes(grouped, kBatch) == kTokens * 2 * 24 * 128 * 2);
}

TEST_CASE("with checkpointing the layers keep their inputs and one layer is there in full") {
  auto config = half_precision("gpt2-small");
  MemoryOptions options;
  const auto all = peak_memory(config, kBatch, options).activations;
  options.activation_checkpointing = true;
  const auto kept = peak_memory(config, kBatch, options).activations;
  const std::int64_t layer = layer_bytes(config, kBatch);
  CHECK((all - kept).value() == 11 * layer - kTokens * 12 * 2 * 768);
}

TEST_CASE("logits take 10 T V in 16 bit and 8 T V in fp32, classes next to nothing") {
  CHECK(peak_memory(half_precision("gpt2-small"), kBatch, {}).logits ==
        Bytes(10 * kTokens * 50257));
  CHECK(peak_memory(model_preset("gpt2-small"), kBatch, {}).logits == Bytes(8 * kTokens * 50257));
  CHECK(peak_memory(model_preset("distilbert"), kBatch, {}).logits == Bytes(64));
}

TEST_CASE("states are counted per parameter, and the buckets are one more copy") {
  const auto config = model_preset("gpt2-small");
  constexpr std::int64_t kParameters = 124439808;
  MemoryOptions options;
  MemoryUse use = peak_memory(config, kBatch, options);
  CHECK(use.parameters == Bytes(4 * kParameters));
  CHECK(use.gradients == Bytes(4 * kParameters));
  CHECK(use.optimizer == Bytes(8 * kParameters));
  CHECK(use.buckets == Bytes(4 * kParameters));
  CHECK(use.total() == use.parameters + use.gradients + use.optimizer + use.buckets +
                           use.activations + use.logits);
  options.gradient_as_bucket_view = true;
  options.master_bytes_per_parameter = 4;
  use = peak_memory(config, kBatch, options);
  CHECK(use.buckets == Bytes(0));
  CHECK(use.optimizer == Bytes(12 * kParameters));
}
