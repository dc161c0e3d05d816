#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/architecture/op.h"

namespace stepsim {

/// A parameter of a described model, and the op of its forward pass that uses it.
struct DescribedParameter {
  Parameter parameter;
  std::string op;
  bool frozen = false;  ///< True: requires_grad is False; it has no gradient.
};

/// Layers of one kind that follow one another, for the formulas of activation memory.
struct LayerStack {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t key_width = 0;  ///< Of K and of V.
  std::int64_t ffn = 0;        ///< That a token passes: of all its experts.
  bool gated = false;       ///< The MLP has a gate, and norms are RMS norms that are written out.
  std::int64_t tokens = 0;  ///< Of each sample; 0: those of the batch.
  std::int64_t query_width = 0;  ///< Of Q and of the context; 0: that of the layer.
};

/// What a config.json describes.
struct DescribedModel {
  std::string architecture;  ///< The class: "LlamaForCausalLM".
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;
  std::int64_t max_length = 0;  ///< Positions; the longest sample.
  std::int64_t classes = 0;     ///< Outputs of a classification head; 0: none.
  std::int64_t window = 0;      ///< Of the layers that have one.
  bool tied_embeddings = false;
  bool causal = false;
  bool has_fused_attention = true;  ///< False: transformers has no other than the eager one.
  std::vector<LayerStack> stacks;
  std::vector<DescribedParameter> parameters;  ///< In the order of named_parameters().
  std::vector<Op> forward;                     ///< In execution order.
  /// Names of Gemms whose input needs no gradient: they are fed with data.
  std::vector<std::string> first_products;
  std::vector<std::string> convolutions;  ///< Names of Gemms that are convolutions.
};

/// How the ops of a described model run.
struct DescribedRun {
  AttentionKind attention = AttentionKind::Dense;
  Dtype dtype = Dtype::F32;
  Dtype parameter_dtype = Dtype::F32;
};

}  // namespace stepsim
