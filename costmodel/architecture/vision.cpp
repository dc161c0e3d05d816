// ViT: an encoder over the patches of images of one size.
#include <fmt/format.h>

#include "costmodel/architecture/families.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

void vit(const ConfigFile& config, Head head, ModelBuilder& builder) {
  DescribedModel& model = builder.model;
  const std::int64_t hidden = config.integer("hidden_size", 768);
  model.hidden = hidden;
  model.layers = config.integer("num_hidden_layers", 12);
  model.heads = model.kv_heads = config.integer("num_attention_heads", 12);
  model.ffn = config.integer("intermediate_size", 3072);
  const auto [height, width] = config.pair("image_size", 224);
  const auto [patch_height, patch_width] = config.pair("patch_size", 16);
  const std::int64_t channels = config.integer("num_channels", 3);
  if (model.heads < 1 || hidden % model.heads != 0) {
    throw FieldError("num_attention_heads",
                     fmt::format("{} heads do not divide the width {}", model.heads, hidden));
  }
  if (patch_height < 1 || patch_width < 1 || height < patch_height || width < patch_width) {
    throw FieldError("patch_size", "expected at least one patch in an image");
  }
  const std::int64_t patches = (height / patch_height) * (width / patch_width);
  const std::int64_t tokens = patches + 1;
  model.max_length = tokens;
  model.stacks = {{model.layers, hidden, model.heads, hidden, model.ffn, false, tokens, 0}};
  const bool qkv_bias = config.flag("qkv_bias", true);
  const std::string root = head == Head::Base ? "" : "vit.";
  const std::string embeddings = root + "embeddings.";
  builder.tensor(embeddings + "cls_token", {1, 1, hidden}, "class_token");
  builder.tensor(embeddings + "position_embeddings", {1, tokens, hidden}, "position_add");
  builder.tensor(embeddings + "patch_embeddings.projection.weight",
                 {hidden, channels, patch_height, patch_width},
                 "patches");
  builder.tensor(embeddings + "patch_embeddings.projection.bias", {hidden}, "patches");
  builder.rows(RowUnit::Samples, patches);
  builder.product("patches", channels * patch_height * patch_width, hidden);
  model.first_products = model.convolutions = {"patches"};
  builder.rows(RowUnit::Samples, tokens);
  builder.add("class_token", hidden);
  builder.add("position_add", hidden);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string name = fmt::format("{}layers.{}.", root, i);
    const std::string op = fmt::format("layer{}.", i);
    builder.linear(name + "attention.q_proj", hidden, hidden, qkv_bias, op + "q");
    builder.linear(name + "attention.k_proj", hidden, hidden, qkv_bias, op + "k");
    builder.linear(name + "attention.v_proj", hidden, hidden, qkv_bias, op + "v");
    builder.linear(name + "attention.o_proj", hidden, hidden, true, op + "attention_output");
    builder.norm(name + "layernorm_before", hidden, true, op + "attention_norm");
    builder.norm(name + "layernorm_after", hidden, true, op + "mlp_norm");
    builder.linear(name + "mlp.fc1", hidden, model.ffn, true, op + "mlp_up");
    builder.linear(name + "mlp.fc2", model.ffn, hidden, true, op + "mlp_down");
    builder.begin(op);
    builder.norm_op("attention_norm", hidden);
    builder.product("q", hidden, hidden);
    builder.product("k", hidden, hidden);
    builder.product("v", hidden, hidden);
    builder.attention({model.heads, model.heads, hidden / model.heads, false, 0, 0});
    builder.product("attention_output", hidden, hidden);
    builder.add("attention_residual", hidden);
    builder.norm_op("mlp_norm", hidden);
    builder.product("mlp_up", hidden, model.ffn);
    builder.op("activation", OpClass::Activation, model.ffn);
    builder.product("mlp_down", model.ffn, hidden);
    builder.add("mlp_residual", hidden);
  }
  builder.begin("");
  builder.norm(root + "layernorm", hidden, true, "final_norm");
  builder.norm_op("final_norm", hidden);
  builder.op("pooling", OpClass::Pooling, hidden);
  builder.rows(RowUnit::Samples);
  if (head == Head::Base) {
    const std::int64_t out = config.integer("pooler_output_size", hidden);
    builder.linear("pooler.dense", hidden, out, true, "pooler");
    builder.product("pooler", hidden, out);
    builder.op("head_activation", OpClass::Activation, out);
    builder.loss(out);
    return;
  }
  model.classes = config.labels();
  builder.linear("classifier", hidden, model.classes, true, "classifier");
  builder.product("classifier", hidden, model.classes);
  builder.loss(model.classes);
}

}  // namespace

std::vector<Family> vision_families() {
  return {{"vit", "ViT", {Head::Images, Head::Base}, vit}};
}

}  // namespace stepsim
