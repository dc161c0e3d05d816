#include "costmodel/model/transformer_json.h"

#include <nlohmann/json.hpp>

namespace stepsim {

Json to_json(const TransformerConfig& config) {
  Json json;
  json["name"] = config.name;
  json["family"] = name_of(config.family);
  json["layers"] = config.layers;
  json["hidden"] = config.hidden;
  json["heads"] = config.heads;
  json["kv_heads"] = config.kv_heads;
  json["ffn"] = config.ffn;
  json["vocab"] = config.vocab;
  json["max_length"] = config.max_length;
  json["classes"] = config.classes;
  json["tied_embeddings"] = config.tied_embeddings;
  json["causal"] = config.causal;
  json["window"] = config.window;
  json["dtype"] = name_of(config.dtype);
  json["parameter_dtype"] = name_of(config.parameter_dtype);
  json["attention"] = name_of(config.attention);
  if (config.kernels != KernelChoice::TorchEager) {
    json["kernels"] = name_of(config.kernels);
  }
  if (config.block_elements > 0) {
    json["block_elements"] = config.block_elements;
  }
  for (const TensorBlock& tensor : config.tensors) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"shape", tensor.shape},
                               {"forward", tensor.forward},
                               {"backward", tensor.backward}});
    if (tensor.dtype) {
      json["tensors"].back()["dtype"] = name_of(*tensor.dtype);
    }
  }
  for (const Parameter& parameter : config.frozen) {
    json["frozen"].push_back({{"name", parameter.name},
                              {"shape", parameter.shape},
                              {"dtype", name_of(parameter.dtype)}});
  }
  if (config.sparse_embeddings) {
    json["sparse_embeddings"] = true;
  }
  if (config.family == ModelFamily::Transformers) {
    json["architecture"] = config.architecture;
    json["config"] = config.config_json;
  }
  return json;
}

namespace {

TensorBlock tensor_from_json(JsonReader& reader) {
  TensorBlock tensor;
  tensor.name = reader.text("name");
  tensor.shape = reader.integers("shape");
  tensor.forward = reader.integer("forward");
  tensor.backward = reader.integer("backward");
  if (reader.has("dtype")) {
    tensor.dtype = reader.parsed("dtype", parse_dtype);
  }
  return tensor;
}

Parameter frozen_from_json(JsonReader& reader) {
  Parameter parameter;
  parameter.name = reader.text("name");
  parameter.shape = reader.integers("shape");
  parameter.dtype = reader.parsed("dtype", parse_dtype);
  return parameter;
}

}  // namespace

TransformerConfig transformer_from_json(JsonReader& reader) {
  TransformerConfig config;
  config.name = reader.text("name");
  config.family = reader.parsed("family", parse_family);
  config.layers = reader.integer("layers");
  config.hidden = reader.integer("hidden");
  config.heads = reader.integer("heads");
  config.kv_heads = reader.integer_or("kv_heads", config.heads);
  config.ffn = reader.integer("ffn");
  config.vocab = reader.integer("vocab");
  config.max_length = reader.integer("max_length");
  config.classes = reader.integer_or("classes", 0);
  config.tied_embeddings = reader.boolean_or("tied_embeddings", false);
  config.causal = reader.boolean_or("causal", false);
  config.window = reader.integer_or("window", 0);
  config.dtype = reader.parsed("dtype", parse_dtype);
  config.parameter_dtype = reader.parsed("parameter_dtype", parse_dtype);
  config.attention = reader.parsed("attention", parse_attention);
  if (reader.has("kernels")) {
    config.kernels = reader.parsed("kernels", parse_kernels);
  }
  config.block_elements = reader.integer_or("block_elements", 0);
  if (reader.has("tensors")) {
    for (JsonReader& tensor : reader.objects("tensors")) {
      config.tensors.push_back(tensor_from_json(tensor));
    }
  }
  if (reader.has("frozen")) {
    for (JsonReader& parameter : reader.objects("frozen")) {
      config.frozen.push_back(frozen_from_json(parameter));
    }
  }
  config.sparse_embeddings = reader.boolean_or("sparse_embeddings", false);
  if (config.family == ModelFamily::Transformers) {
    config.architecture = reader.text("architecture");
    config.config_json = reader.text("config");
  }
  try {
    check(config);
  } catch (const FieldError& error) {
    reader.fail(error.field(), error.reason());
  }
  return config;
}

}  // namespace stepsim
