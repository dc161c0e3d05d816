#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/model/transformer_layout.h"

namespace stepsim {
namespace {

/// The largest size: products of three of them fit in 64 bits.
constexpr std::int64_t kLargestSize = 1 << 20;
constexpr std::int64_t kMaxLayers = 10000;

void check_size(const std::string& key, std::int64_t value, std::int64_t largest) {
  if (value <= 0) {
    throw FieldError(key, fmt::format("{} must be at least 1", value));
  }
  if (value > largest) {
    throw FieldError(key, fmt::format("{} is beyond {}", value, largest));
  }
}

void check_heads(const TransformerConfig& config) {
  if (config.hidden % config.heads != 0) {
    throw FieldError("heads",
                     fmt::format("{} do not divide hidden {}", config.heads, config.hidden));
  }
  if (config.heads % config.kv_heads != 0) {
    throw FieldError("kv_heads",
                     fmt::format("{} do not divide heads {}", config.kv_heads, config.heads));
  }
  if (!rotary(config.family) && config.kv_heads != config.heads) {
    throw FieldError("kv_heads",
                     fmt::format("{} groups no queries, so it must equal heads {}",
                                 name_of(config.family),
                                 config.heads));
  }
  if (rotary(config.family) && config.head_dim() % 2 != 0) {
    throw FieldError("heads",
                     fmt::format("{} rotates pairs of features, but hidden / heads is {}",
                                 name_of(config.family),
                                 config.head_dim()));
  }
}

constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

void check_tensor(const TensorBlock& tensor, std::set<std::string_view>& names) {
  if (tensor.name.empty() || !names.insert(tensor.name).second) {
    throw FieldError("tensors", fmt::format("the name '{}' is empty or used twice", tensor.name));
  }
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.shape) {
    if (size <= 0 || size > kMaxElements / elements) {
      throw FieldError("tensors",
                       fmt::format("{} has a size outside 1..{}", tensor.name, kMaxElements));
    }
    elements *= size;
  }
  if (tensor.forward < 0 || tensor.backward < 0) {
    throw FieldError("tensors", fmt::format("{} has work below 0", tensor.name));
  }
}

void check_blocks(const TransformerConfig& config) {
  const bool blocks = config.family == ModelFamily::Blocks;
  if (config.tensors.empty()) {
    if (blocks) {
      check_size("block_elements", config.block_elements, kMaxElements);
    }
    return;
  }
  if (!blocks || config.block_elements != 0 ||
      config.layers != static_cast<std::int64_t>(config.tensors.size())) {
    throw FieldError("tensors",
                     "a list needs kind blocks, one tensor per layer and no block_elements");
  }
  for (const Parameter& parameter : config.frozen) {
    for (const std::int64_t size : parameter.shape) {
      if (size <= 0 || size > kMaxElements) {
        throw FieldError("frozen",
                         fmt::format("{} has a size outside 1..{}", parameter.name, kMaxElements));
      }
    }
  }
  std::set<std::string_view> names;
  double forward = 0;
  double backward = 0;
  for (const TensorBlock& tensor : config.tensors) {
    check_tensor(tensor, names);
    forward += static_cast<double>(tensor.forward);
    backward += static_cast<double>(tensor.backward);
  }
  if (forward <= 0 || backward <= 0) {
    throw FieldError("tensors", "no work at all; expected more than 0 forward and backward");
  }
}

}  // namespace

void check(const TransformerConfig& config) {
  if (config.family == ModelFamily::Transformers) {
    (void)described(config);
    return;
  }
  check_size("layers", config.layers, kMaxLayers);
  check_size("hidden", config.hidden, kLargestSize);
  check_size("heads", config.heads, kLargestSize);
  check_size("kv_heads", config.kv_heads, kLargestSize);
  check_size("ffn", config.ffn, kLargestSize);
  check_size("vocab", config.vocab, 16 * kLargestSize);
  check_size("max_length", config.max_length, 16 * kLargestSize);
  if (config.classes < 0 || config.classes > kLargestSize) {
    throw FieldError("classes", fmt::format("{} is outside 0..{}", config.classes, kLargestSize));
  }
  if (config.window < 0) {
    throw FieldError("window", fmt::format("{} is negative; 0 means unlimited", config.window));
  }
  check_heads(config);
  if (config.sparse_embeddings && config.tied_embeddings) {
    throw FieldError("sparse_embeddings", "a tied table also gets the head's dense gradient");
  }
  check_blocks(config);
  if (language_model(config.family) && config.classes > 0) {
    throw FieldError(
        "classes",
        fmt::format("{} predicts tokens and has no classification head", name_of(config.family)));
  }
  if (!language_model(config.family) && config.tied_embeddings) {
    throw FieldError(
        "tied_embeddings",
        fmt::format("{} has no head over the vocabulary to tie", name_of(config.family)));
  }
}

}  // namespace stepsim
