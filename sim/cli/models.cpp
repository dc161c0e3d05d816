#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/architecture/families.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/model/op_flops.h"
#include "costmodel/model/transformer_layout.h"
#include "costmodel/terminal/table.h"
#include "sim/ask/question.h"

namespace stepsim {

namespace {

struct ModelsOptions {
  std::string file;
  std::string architecture;
  int samples = 1;
  int length = 512;
};

constexpr const char* kModelsUsage =
    "usage: stepsim models [--json FILE]\n"
    "       stepsim models MODEL [--architecture CLASS] [--samples N] [--length N] [options]\n\n"
    "The model presets a scenario can name ([model] preset = …), and the families of transformers\n"
    "whose config.json it can name ([model] config = \"config.json\").\n\n"
    "With a config.json or a preset: parameters, tensors and floating-point operations (forward "
    "and\n"
    "backward of one batch, as PyTorch's FlopCounterMode counts them with eager attention). "
    "--json\n"
    "has all tensors in the order of named_parameters(), and the order in which their gradients\n"
    "become ready; --csv has the list that `[model] tensors` and `stepcal import step-times\n"
    "--tensors` read.\n\n"
    "examples:\n"
    "  stepsim models\n"
    "  stepsim models --json -\n"
    "  stepsim models llama3.2-1b\n"
    "  stepsim models config.json --samples 8 --length 2048\n"
    "  stepsim models config.json --csv tensors.csv\n";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

Answer all_models() {
  Table table(
      {"preset", "layers", "hidden", "heads", "vocab", "parameters", "gradients", "source"});
  Json list = Json::array();
  for (const ModelPreset& preset : model_presets()) {
    const TransformerConfig& config = preset.config;
    const std::int64_t count = parameter_count(config);
    table.add({config.name,
               std::to_string(config.layers),
               std::to_string(config.hidden),
               std::to_string(config.heads),
               std::to_string(config.vocab),
               std::to_string(count),
               format_bytes(Bytes(count * element_size(config.parameter_dtype))),
               preset.source});
    list.push_back({{"name", config.name},
                    {"layers", config.layers},
                    {"hidden", config.hidden},
                    {"heads", config.heads},
                    {"vocab", config.vocab},
                    {"parameters", count},
                    {"source", preset.source}});
  }
  Table of_families({"model_type", "classes"});
  for (const Family& family : families()) {
    of_families.add({family.model_type, joined(classes_of(family))});
  }
  Answer answer;
  answer.text = [=](const Screen& screen) {
    return table.text(screen) +
           "\nFamilies of transformers, by their config.json ([model] config = \"config.json\"; "
           "stepsim models config.json):\n\n" +
           of_families.text(screen);
  };
  answer.json = [=] { return list; };
  return answer;
}

/// A model and all that is told of it.
struct ListedModel {
  TransformerConfig config;
  DescribedModel parts;
  std::vector<int> ready_order;  ///< Of the tensors with gradients.
  std::int64_t parameters = 0;
  std::int64_t trainable = 0;
  std::int64_t samples = 0;
  std::int64_t length = 0;
  double flops = 0;
};

/// Whether a preset is named, and no file is.
bool names_preset(const std::string& name) {
  return !std::filesystem::exists(name) &&
         std::ranges::find(model_presets(), name, [](const ModelPreset& preset) {
           return preset.config.name;
         }) != model_presets().end();
}

TransformerConfig listed_config(const ModelsOptions& options) {
  if (names_preset(options.file)) {
    return model_preset(options.file);
  }
  const std::string text = read_text(options.file);
  if (options.file.ends_with(".toml")) {
    throw InputError(SourcePlace{options.file},
                     "is a scenario (TOML); stepsim models takes a config.json of transformers or "
                     "a preset");
  }
  try {
    return transformers_model(text, options.architecture, options.file);
  } catch (const FieldError& error) {
    throw InputError(SourcePlace{options.file}, "{}", error.what());
  } catch (const InputError& error) {
    if (error.has_place()) {
      throw;
    }
    throw InputError(SourcePlace{options.file}, error.what(), error.lookup());
  }
}

DescribedModel parts_of(const TransformerConfig& config) {
  if (config.family == ModelFamily::Transformers) {
    return described(config);
  }
  DescribedModel parts;
  for (const OwnedParameter& one : owned_parameters(config)) {
    parts.parameters.push_back({one.parameter, one.op});
  }
  return parts;
}

ListedModel list_model(const ModelsOptions& options) {
  ListedModel model;
  model.config = listed_config(options);
  model.config.attention = AttentionKind::Dense;
  model.parts = parts_of(model.config);
  model.ready_order = ready_order(model.config);
  for (const DescribedParameter& one : model.parts.parameters) {
    model.parameters += one.parameter.elements();
    model.trainable += one.frozen ? 0 : one.parameter.elements();
  }
  model.samples = options.samples;
  model.length = options.length;
  model.flops = training_flops(model.config, model.samples, model.length);
  return model;
}

std::string model_text(const ListedModel& model) {
  const TransformerConfig& config = model.config;
  const auto row = [](const std::string& name, const std::string& value) {
    return fmt::format("{:<16}{}\n", name, value);
  };
  std::string text =
      row("model",
          config.architecture.empty() ? config.name
                                      : fmt::format("{} ({})", config.architecture, config.name));
  text += row("layers", std::to_string(config.layers));
  text += row("hidden", std::to_string(config.hidden));
  text += row("heads",
              config.kv_heads == config.heads
                  ? std::to_string(config.heads)
                  : fmt::format("{}, {} of keys and values", config.heads, config.kv_heads));
  if (config.vocab > 0) {
    text += row("vocab", std::to_string(config.vocab));
  }
  if (config.classes > 0) {
    text += row("classes", std::to_string(config.classes));
  }
  text += row("longest sample", std::to_string(config.max_length));
  const std::int64_t frozen = model.parameters - model.trainable;
  text += row("parameters",
              frozen == 0 ? std::to_string(model.parameters)
                          : fmt::format("{}, {} of them frozen", model.parameters, frozen));
  text += row("tensors", std::to_string(model.parts.parameters.size()));
  text +=
      row("gradients",
          fmt::format("{} in {}",
                      format_bytes(Bytes(model.trainable * element_size(config.parameter_dtype))),
                      name_of(config.parameter_dtype)));
  text += row(
      "operations",
      fmt::format(
          "{:.0f} forward and backward, {} x {} tokens", model.flops, model.samples, model.length));
  if (config.family == ModelFamily::Transformers) {
    for (const std::string& size : sizes_by_default(config)) {
      text += row("not in the file", size + ", transformers' own default for this class");
    }
  }
  return text;
}

Json model_json(const ListedModel& model) {
  const TransformerConfig& config = model.config;
  Json tensors = Json::array();
  std::vector<std::string> names;  // Of the tensors with gradients.
  for (const DescribedParameter& one : model.parts.parameters) {
    tensors.push_back({{"name", one.parameter.name},
                       {"shape", one.parameter.shape},
                       {"requires_grad", !one.frozen}});
    if (!one.frozen) {
      names.push_back(one.parameter.name);
    }
  }
  return {{"model_type", config.name},
          {"architecture", config.architecture},
          {"layers", config.layers},
          {"hidden", config.hidden},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"vocab", config.vocab},
          {"max_length", config.max_length},
          {"tied_embeddings", config.tied_embeddings},
          {"dtype", name_of(config.parameter_dtype)},
          {"parameters", model.parameters},
          {"trainable", model.trainable},
          {"samples", model.samples},
          {"length", model.length},
          {"flops", model.flops},
          {"tensors", std::move(tensors)},
          {"ready_order", mapped(model.ready_order, [&](int index) {
             return names[static_cast<std::size_t>(index)];
           })}};
}

std::string tensors_csv(const ListedModel& model) {
  std::string text = "name,shape,requires_grad\n";
  for (const DescribedParameter& one : model.parts.parameters) {
    std::string shape;
    for (const std::int64_t size : one.parameter.shape) {
      shape += (shape.empty() ? "" : "x") + std::to_string(size);
    }
    text += fmt::format("{},{},{}\n", one.parameter.name, shape, one.frozen ? "False" : "True");
  }
  return text;
}

Answer ask_models(const Request& request, const ModelsOptions& options) {
  if (options.file.empty()) {
    for (const GivenOption& given : request.given) {
      if (given.name == "architecture" || given.name == "samples" || given.name == "length" ||
          given.name == "csv") {
        request.fail(fmt::format("--{} needs a config.json or a preset", given.name));
      }
    }
    return all_models();
  }
  const ListedModel model = list_model(options);
  Answer answer;
  answer.text = [=](const Screen&) { return model_text(model); };
  answer.json = [=] { return model_json(model); };
  answer.csv = [=] { return tensors_csv(model); };
  return answer;
}

}  // namespace

Question models_question() {
  using Q = ModelsOptions;
  constexpr int kMostSamples = 1 << 20;
  return question(
      "models",
      "the models there are, and what a config.json describes",
      kModelsUsage,
      std::vector<OptionRow>{
          option("config", &Q::file, "MODEL: a config.json of transformers, or a preset")
              .positional(1),
          option("architecture", &Q::architecture, "CLASS: the class to train"),
          option("samples", &Q::samples, "N: samples of the batch, 1 without it")
              .from(1)
              .up_to(kMostSamples),
          option("length", &Q::length, "N: tokens of a sample, 512 without it")
              .from(1)
              .up_to(kMostSamples),
          option("json", &Outputs::json, "FILE or -: write the list as JSON").written(),
          option("csv", &Outputs::csv, "FILE or -: write the tensors as CSV").written()},
      ask_models);
}

}  // namespace stepsim
