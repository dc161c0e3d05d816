#include "costmodel/model/transformer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/checkpointing.h"
#include "costmodel/model/memory.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/model/op_flops.h"
#include "costmodel/model/transformer_json.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::Approx;
using stepsim::test::error_of;

namespace {

std::vector<std::string> names_of(const std::vector<Op>& ops) {
  std::vector<std::string> names;
  names.reserve(ops.size());
  for (const auto& op : ops) {
    names.push_back(op.name + (op.pass == Pass::InputGradient    ? " dgrad"
                               : op.pass == Pass::WeightGradient ? " wgrad"
                                                                 : ""));
  }
  return names;
}

/// The preset with fewer layers, to write its lists out.
TransformerConfig shortened(std::string_view preset) {
  TransformerConfig config = model_preset(preset);
  config.layers = 1;
  return config;
}

std::vector<std::int64_t> byte_list(const std::string& case_name, const std::string& path) {
  const Json data = parse_json(read_text(path), path);
  for (const auto& entry : data["cases"]) {
    if (entry["name"] == case_name) {
      std::vector<std::int64_t> bytes;
      for (const auto& parameter : entry["params"]) {
        bytes.push_back(parameter["bytes"].get<std::int64_t>());
      }
      return bytes;
    }
  }
  return {};
}

std::vector<std::int64_t> bytes_of(std::string_view preset) {
  std::vector<std::int64_t> bytes;
  for (const auto& parameter : parameters(model_preset(preset))) {
    bytes.push_back(parameter.bytes().value());
  }
  return bytes;
}

}  // namespace

TEST_CASE("presets have the published numbers of tensors and parameters") {
  const std::map<std::string, std::pair<std::size_t, std::int64_t>> published = {
      {"tiny-classifier", {15, 412960}},       {"distilbert", {104, 66955010}},
      {"bert-base", {199, 109482240}},         {"bert-large", {391, 335141888}},
      {"gpt2-small", {148, 124439808}},        {"gpt2-medium", {292, 354823168}},
      {"gpt2-large", {436, 774030080}},        {"gpt2-xl", {580, 1557611200}},
      {"llama2-7b", {291, 6738415616}},        {"llama2-13b", {363, 13015864320}},
      {"llama2-70b", {723, 68976648192}},      {"llama3-8b", {291, 8030261248}},
      {"nanochat-d24", {146, 880803840}},      {"llama3.2-1b", {146, 1235814400}},
      {"llama3.2-3b", {254, 3212749824}},      {"qwen2.5-1.5b", {338, 1543714304}},
      {"qwen2.5-7b", {339, 7615616512}},       {"qwen3-4b", {398, 4022468096}},
      {"qwen3-8b", {399, 8190735360}},         {"mistral-7b-v0.3", {291, 7248023552}},
      {"olmo2-7b", {355, 7298617344}},         {"smollm3-3b", {326, 3075098624}},
      {"modernbert-base", {137, 149655232}},   {"vit-base", {200, 86567656}},
      {"whisper-small", {478, 240582912}},  // Trainable: beside 1,152,000 of positions.
      {"whisper-large-v3", {1258, 1541570560}}};
  CHECK(model_presets().size() == published.size());
  for (const auto& preset : model_presets()) {
    CAPTURE(preset.config.name);
    const auto& [tensors, count] = published.at(preset.config.name);
    CHECK(parameters(preset.config).size() == tensors);
    CHECK(parameter_count(preset.config) == count);
    CHECK_FALSE(preset.source.empty());
  }
}

TEST_CASE("models that are asked for in turn keep lists of their own") {
  TransformerConfig small = model_preset("gpt2-small");
  const auto names = mapped(parameters(small), &Parameter::name);
  const std::vector<int> order = ready_order(small);
  const StepOps ops = step_ops(small);
  TransformerConfig shorter = small;
  shorter.layers = 1;
  CHECK(parameters(shorter).size() < names.size());
  CHECK(step_ops(shorter).forward.size() < ops.forward.size());
  CHECK(ready_order(shorter).size() == parameters(shorter).size());
  CHECK(mapped(parameters(small), &Parameter::name) == names);
  CHECK(ready_order(small) == order);
  CHECK(step_ops(small).backward == ops.backward);
  small.layers = 0;
  CHECK_THROWS_AS((void)parameters(small), InputError);
  CHECK_THROWS_AS((void)parameters(small), InputError);
}

TEST_CASE("parameter lists of GPT-2 small and BERT-large equal those DDP was recorded with") {
  const auto path = test::data_file("ddp_buckets.json");
  if (!path) {
    return;
  }
  CHECK(bytes_of("gpt2-small") == byte_list("gpt2_small_tied", *path));
  CHECK(bytes_of("bert-large") == byte_list("bert_large_approx", *path));
}

TEST_CASE("every parameter of every preset becomes ready exactly once") {
  for (const auto& preset : model_presets()) {
    CAPTURE(preset.config.name);
    auto order = ready_order(preset.config);
    std::vector<int> all(parameters(preset.config).size());
    std::iota(all.begin(), all.end(), 0);
    std::sort(order.begin(), order.end());
    CHECK(order == all);
  }
}

TEST_CASE("a model registered in the order of use is ready in reverse, norms by weight and bias") {
  for (const std::string name : {"tiny-classifier", "distilbert", "bert-large", "gpt2-small"}) {
    CAPTURE(name);
    const auto tensors = parameters(model_preset(name));
    std::vector<int> expected;
    for (std::size_t i = tensors.size(); i-- > 0;) {
      expected.push_back(static_cast<int>(i));
      // A norm is the one module whose weight is a vector.
      if (i + 1 < tensors.size() && tensors[i].shape.size() == 1 &&
          tensors[i].name.ends_with(".weight")) {
        std::swap(expected[expected.size() - 2], expected.back());
      }
    }
    if (name == "bert-large") {  // It looks up token types before positions, registered between.
      std::swap(expected[expected.size() - 3], expected[expected.size() - 2]);
    }
    CHECK(ready_order(model_preset(name)) == expected);
  }
}

TEST_CASE("a config.json describes what kinds of models are, op by op") {
  const std::string llama =
      R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
          "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
          "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"})";
  const std::string gpt2 = R"({"model_type": "gpt2"})";
  for (const auto& [text, preset] :
       {std::pair(llama, "llama3-8b"), std::pair(gpt2, "gpt2-small")}) {
    const std::string name = preset;
    CAPTURE(name);
    const TransformerConfig kind = model_preset(name);
    const TransformerConfig config = transformers_model(text, "", "config.json");
    CHECK(parameters(config) == parameters(kind));
    CHECK(step_ops(config).forward == step_ops(kind).forward);
    CHECK(step_ops(config).backward == step_ops(kind).backward);
    const BatchShape batch = batch_shape(std::vector<std::int64_t>{300, 512, 40});
    const auto bytes = [&](const TransformerConfig& model, bool checkpointing) {
      MemoryOptions options;
      options.checkpointing.kind = checkpointing ? CheckpointKind::Full : CheckpointKind::None;
      return PeakMemory(model, options).at(batch).total();
    };
    CHECK(bytes(config, false) == bytes(kind, false));
    CHECK(bytes(config, true) == bytes(kind, true));
    const Json json = to_json(config);
    JsonReader reader(json, "m", 1, "model");
    CHECK(transformer_from_json(reader) == config);
  }
}

TEST_CASE("ops of an encoder that sees its own length do not depend on the tokens") {
  const TransformerConfig vit = transformers_model(R"({"model_type": "vit"})", "", "config.json");
  CHECK(vit.max_length == 197);
  CHECK(training_flops(vit, 2, 1) == training_flops(vit, 2, 197));
  const TransformerConfig whisper =
      transformers_model(R"({"model_type": "whisper"})", "", "config.json");
  // The encoder's positions are frozen: in memory, and not among the gradients.
  REQUIRE(frozen_parameters(whisper).size() == 1);
  constexpr std::int64_t kPositions = 1500 * 384;
  CHECK(frozen_parameters(whisper)[0].elements() == kPositions);
  const MemoryUse use = PeakMemory(whisper, {}).at({1, 10, 10, 100});
  CHECK(use.parameters.value() - use.gradients.value() == 4 * kPositions);
  // A cross attention meets all frames with each token.
  for (const Op& op : step_ops(whisper).forward) {
    if (op.name == "decoder0.cross_scores") {
      CHECK(op_flops(op, {2, 7, 14, 98}) == 2.0 * 14 * 1500 * 384);
    }
  }
}

TEST_CASE("experts count whole in gradients, and by those that a token passes in operations") {
  const std::string text =
      R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 50,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4)";
  const auto model = [&](int experts, int active) {
    return transformers_model(text + ", \"num_local_experts\": " + std::to_string(experts) +
                                  ", \"num_experts_per_tok\": " + std::to_string(active) + "}",
                              "",
                              "config.json");
  };
  constexpr std::int64_t kExpert = 3 * 64 * 96;
  CHECK(parameter_count(model(8, 2)) - parameter_count(model(7, 2)) == kExpert + 64);
  CHECK(training_flops(model(8, 3), 1, 10) - training_flops(model(8, 2), 1, 10) ==
        6.0 * 10 * kExpert);
  CHECK_THROWS_WITH_AS(
      (void)model(4, 5), doctest::Contains("num_experts_per_tok: 5 of 4 experts"), InputError);
}

TEST_CASE("Llama registers its norms last but uses them first") {
  // 0 embedding, 1 q, 2 k, 3 v, 4 o, 5 gate, 6 up, 7 down, 8 and 9 norms, 10 final norm, 11 head
  CHECK(ready_order(shortened("llama3-8b")) ==
        std::vector<int>{11, 10, 7, 6, 5, 9, 4, 3, 2, 1, 8, 0});
  CHECK(parameters(shortened("llama3-8b"))[8].name == "model.layers.0.input_layernorm.weight");
}

TEST_CASE("a tied head has no parameter and the embedding completes it last") {
  const auto config = shortened("gpt2-small");
  const auto ops = step_ops(config);
  CHECK(ops.backward.back().name == "embedding");
  CHECK(ops.backward.back().completes == std::vector<int>{0});
  const auto head = std::find_if(ops.backward.begin(), ops.backward.end(), [](const Op& op) {
    return op.name == "lm_head" && op.pass == Pass::WeightGradient;
  });
  REQUIRE(head != ops.backward.end());
  CHECK(head->completes.empty());
  auto untied = config;
  untied.tied_embeddings = false;
  CHECK(parameters(untied).back().name == "lm_head.weight");
  CHECK(ready_order(untied).front() == static_cast<int>(parameters(untied).size()) - 1);
}

TEST_CASE("a checkpointed layer computes its forward again right before its backward") {
  for (const std::string name : {"tiny-classifier", "bert-base", "llama3-8b"}) {
    CAPTURE(name);
    TransformerConfig config = shortened(name);
    config.layers = 2;
    const StepOps plain = step_ops(config);
    const StepOps ops = checkpointed_step_ops(config, {CheckpointKind::Full});
    CHECK(ops.forward == plain.forward);
    std::vector<Op> backward;
    std::vector<Op> again;
    for (const Op& op : ops.backward) {
      (op.pass == Pass::Forward ? again : backward).push_back(op);
    }
    CHECK(backward == plain.backward);
    std::vector<Op> layers;
    for (const std::string_view layer : {"layer1", "layer0"}) {
      std::ranges::copy_if(plain.forward, std::back_inserter(layers), [&](const Op& op) {
        return layer_of(op, config.family) == layer;
      });
      // What follows the last op that is computed again is the layer's own backward.
      const auto last = std::ranges::find(ops.backward, layers.back());
      REQUIRE(last != ops.backward.end());
      CHECK(layer_of(*(last + 1), config.family) == layer);
      const auto first = std::ranges::find_if(
          ops.backward, [&](const Op& op) { return layer_of(op, config.family) == layer; });
      CHECK(first->pass == Pass::Forward);
    }
    CHECK(again == layers);
  }
}

TEST_CASE("selective checkpointing computes again what it does not keep") {
  TransformerConfig config = shortened("llama3-8b");
  config.layers = 4;
  config.attention = AttentionKind::Flash;
  const auto again = [&](const Checkpointing& checkpointing) {
    std::vector<std::string> names;
    for (const Op& op : checkpointed_step_ops(config, checkpointing).backward) {
      if (op.pass == Pass::Forward) {
        names.push_back(op.name);
      }
    }
    return names;
  };
  const auto of_layer = [](const std::vector<std::string>& names, const std::string& layer) {
    std::vector<std::string> own;
    for (const std::string& name : names) {
      if (name.starts_with(layer + ".")) {
        own.push_back(name.substr(layer.size() + 1));
      }
    }
    return own;
  };
  using Names = std::vector<std::string>;
  CHECK(again({CheckpointKind::None}).empty());
  // These are the second, fourth and sixth of q, k, v, attention_output, mlp_gate, mlp_up and
  // mlp_down.
  const Names ops = again({CheckpointKind::Ops, 2});
  for (const std::string layer : {"layer0", "layer3"}) {
    CHECK(of_layer(ops, layer) == Names{"attention_norm",
                                        "k",
                                        "rotary",
                                        "attention_output",
                                        "attention_residual",
                                        "mlp_norm",
                                        "mlp_up",
                                        "activation",
                                        "mlp_residual"});
  }
  CHECK(of_layer(again({CheckpointKind::Ops, 3}), "layer1") == Names{"attention_norm",
                                                                     "v",
                                                                     "rotary",
                                                                     "attention_residual",
                                                                     "mlp_norm",
                                                                     "mlp_up",
                                                                     "activation",
                                                                     "mlp_residual"});
  const Names products = again({CheckpointKind::Ops, 0});
  CHECK(std::ranges::find(products, "layer0.mlp_up") == products.end());
  CHECK(std::ranges::find(products, "layer0.activation") != products.end());
  // Every other layer in full: the second and the fourth.
  const Names layers = again({CheckpointKind::Layers, 2});
  CHECK(of_layer(layers, "layer0").empty());
  CHECK(of_layer(layers, "layer1") == of_layer(again({CheckpointKind::Full}), "layer1"));
  CHECK(of_layer(layers, "layer2").empty());
  CHECK(of_layer(layers, "layer3").size() == of_layer(layers, "layer1").size());
}

TEST_CASE("the names of the kinds of checkpointing") {
  for (const char* name : {"false", "full", "layers", "ops"}) {
    CHECK(name_of(parse_checkpoint_kind(name)) == name);
  }
  CHECK(parse_checkpoint_kind("true") == CheckpointKind::Full);
  CHECK_THROWS_AS((void)parse_checkpoint_kind("blocks"), InputError);
}

TEST_CASE("the tiny classifier's step is the list in the documentation") {
  const auto ops = step_ops(shortened("tiny-classifier"));
  CHECK(names_of(ops.forward) == std::vector<std::string>{"embedding",
                                                          "layer0.attention_norm",
                                                          "layer0.qkv",
                                                          "layer0.scores",
                                                          "layer0.softmax",
                                                          "layer0.context",
                                                          "layer0.attention_output",
                                                          "layer0.attention_residual",
                                                          "layer0.mlp_norm",
                                                          "layer0.mlp_up",
                                                          "layer0.activation",
                                                          "layer0.mlp_down",
                                                          "layer0.mlp_residual",
                                                          "pooling",
                                                          "classifier",
                                                          "loss"});
  CHECK(ops.backward[1].name == "classifier");
  CHECK(ops.backward[1].pass == Pass::InputGradient);
  CHECK(ops.backward[2].pass == Pass::WeightGradient);
  CHECK(ops.backward[2].completes == std::vector<int>{14, 13});
  CHECK(ops.backward.size() == ops.forward.size() + 5);
}

TEST_CASE("Bert normalises after the sums, Llama before and with a gate") {
  CHECK(names_of(step_ops(shortened("bert-base")).forward) ==
        std::vector<std::string>{"embedding",
                                 "token_type_embedding",
                                 "position_embedding",
                                 "embedding_add",
                                 "embedding_norm",
                                 "layer0.q",
                                 "layer0.k",
                                 "layer0.v",
                                 "layer0.scores",
                                 "layer0.softmax",
                                 "layer0.context",
                                 "layer0.attention_output",
                                 "layer0.attention_residual",
                                 "layer0.attention_norm",
                                 "layer0.mlp_up",
                                 "layer0.activation",
                                 "layer0.mlp_down",
                                 "layer0.mlp_residual",
                                 "layer0.mlp_norm",
                                 "pooling",
                                 "pooler",
                                 "head_activation",
                                 "loss"});
  const auto llama = step_ops(shortened("llama3-8b"));
  CHECK(names_of(llama.forward) == std::vector<std::string>{"embedding",
                                                            "layer0.attention_norm",
                                                            "layer0.q",
                                                            "layer0.k",
                                                            "layer0.v",
                                                            "layer0.rotary",
                                                            "layer0.attention",
                                                            "layer0.attention_output",
                                                            "layer0.attention_residual",
                                                            "layer0.mlp_norm",
                                                            "layer0.mlp_gate",
                                                            "layer0.mlp_up",
                                                            "layer0.activation",
                                                            "layer0.mlp_down",
                                                            "layer0.mlp_residual",
                                                            "final_norm",
                                                            "lm_head",
                                                            "loss"});
  CHECK(llama.forward[3].n == 1024);  // 8 key heads of 128
  CHECK(llama.forward[5].n == 5120);
  CHECK(llama.forward[6].kv_heads == 8);
  CHECK(llama.forward[6].dtype == Dtype::Bf16);
}

TEST_CASE("without padding every op over tokens says so") {
  auto config = shortened("llama3-8b");
  config.attention = AttentionKind::Varlen;
  for (const auto& op : step_ops(config).forward) {
    CHECK(op.varlen);
  }
}

TEST_CASE("a model that cannot exist is refused by its key") {
  const auto broken = [](auto change) {
    TransformerConfig config = model_preset("tiny-classifier");
    change(config);
    return error_of([&config] { check(config); });
  };
  CHECK(broken([](auto&) {}) == "no error");
  CHECK(broken([](auto& c) { c.heads = c.kv_heads = 5; }) == "heads: 5 do not divide hidden 48");
  CHECK(broken([](auto& c) { c.layers = 0; }) == "layers: 0 must be at least 1");
  CHECK(broken([](auto& c) { c.hidden = -1; }) == "hidden: -1 must be at least 1");
  CHECK(broken([](auto& c) { c.ffn = 1LL << 40; }) == "ffn: 1099511627776 is beyond 1048576");
  CHECK(broken([](auto& c) { c.kv_heads = 2; }) ==
        "kv_heads: token_classifier groups no queries, so it must equal heads 4");
  CHECK(broken([](auto& c) { c.tied_embeddings = true; }) ==
        "tied_embeddings: token_classifier has no head over the vocabulary to tie");
  CHECK(broken([](auto& c) { c.window = -3; }) == "window: -3 is negative; 0 means unlimited");
  CHECK(broken([](auto& c) { c.family = ModelFamily::Gpt2; }) ==
        "classes: gpt2 predicts tokens and has no classification head");
  CHECK(broken([](auto& c) {
          c.family = ModelFamily::Llama;
          c.classes = 0;
          c.kv_heads = 3;
        }) == "kv_heads: 3 do not divide heads 4");
  CHECK(broken([](auto& c) {
          c.family = ModelFamily::Llama;
          c.classes = 0;
          c.heads = c.kv_heads = 16;
        }) == "heads: llama rotates pairs of features, but hidden / heads is 3");
}

TEST_CASE("names read back as they are printed, and unknown ones list the known") {
  for (int i = 0; i < 16; ++i) {
    const auto value = static_cast<OpClass>(i);
    CHECK(parse_op_class(name_of(value)) == value);
  }
  for (int i = 0; i < 4; ++i) {
    CHECK(parse_pass(name_of(static_cast<Pass>(i))) == static_cast<Pass>(i));
  }
  CHECK(parse_dtype("float32") == Dtype::F32);
  CHECK(parse_dtype("bfloat16") == Dtype::Bf16);
  CHECK(parse_row_unit("samples") == RowUnit::Samples);
  CHECK(error_of([] { (void)parse_dtype("bf61"); }) ==
        "unknown dtype 'bf61'; did you mean 'bf16'? known: f32, tf32, bf16, f16, f64");
  CHECK(error_of([] { (void)parse_attention("flsh"); }) ==
        "unknown attention 'flsh'; did you mean 'flash'? known: dense, flash, varlen");
  CHECK(error_of([] {
          (void)model_preset("gpt2-smal");
        }).find("unknown model preset 'gpt2-smal'; did you mean 'gpt2-small'?") == 0);
}

TEST_CASE("every preset reads back from its JSON") {
  for (const auto& preset : model_presets()) {
    CAPTURE(preset.config.name);
    const std::string text = to_json(preset.config).dump();
    const Json json = parse_json(text, "m");
    JsonReader reader(json, "m", 1, "model");
    CHECK(transformer_from_json(reader) == preset.config);
  }
  Json json = to_json(model_preset("tiny-classifier"));
  json["heads"] = 5;
  json["kv_heads"] = 5;
  JsonReader reader(json, "m", 1, "model");
  CHECK(error_of([&reader] { (void)transformer_from_json(reader); }) ==
        "m:1: error: model.heads: 5 do not divide hidden 48");
}

TEST_CASE("a model runs eager PyTorch's kernels unless its description says otherwise") {
  TransformerConfig config = model_preset("gpt2-small");
  CHECK(config.kernels == KernelChoice::TorchEager);
  CHECK_FALSE(to_json(config).contains("kernels"));  // Files without the key read as before.
  config.kernels = KernelChoice::Fused;
  const Json json = to_json(config);
  CHECK(json["kernels"] == "fused");
  JsonReader reader(json, "m", 1, "model");
  CHECK(transformer_from_json(reader) == config);
  CHECK(error_of([] { (void)parse_kernels("torch_eger"); }) ==
        "unknown kernels 'torch_eger'; did you mean 'torch_eager'? known: torch_eager, fused");
}

TEST_CASE("training flops are six times the multiply-adds of the matrices, and attention") {
  // Forward multiply-adds of the lab: 18,432 a token in linear layers, 96 T a token in attention,
  // 768 a sample in the classifier; twice that in operations, and twice again backward.
  const double length = 128;
  const double samples = 8;
  const double forward = 2 * (samples * length * (18432 + 96 * length) + 768 * samples);
  CHECK(training_flops(model_preset("tiny-classifier"), 8, 128) == Approx(3 * forward));
}
