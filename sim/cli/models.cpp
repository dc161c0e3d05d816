#include <nlohmann/json.hpp>

#include "costmodel/base/parse_units.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/terminal/table.h"
#include "sim/ask/question.h"

namespace stepsim {

namespace {

constexpr const char* kModelsUsage =
    "usage: stepsim models [--json FILE]\n\n"
    "The model presets a scenario can name ([model] preset = …).\n\n"
    "examples:\n"
    "  stepsim models\n"
    "  stepsim models --json -\n";

Answer ask_models(const Request&, const NoOptions&) {
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
  Answer answer;
  answer.text = [=](const Screen& screen) { return table.text(screen); };
  answer.json = [=] { return list; };
  return answer;
}

}  // namespace

Question models_question() {
  return question(
      "models",
      "the model presets there are",
      kModelsUsage,
      std::vector<OptionRow>{
          option("json", &Outputs::json, "FILE or -: write the list as JSON").written()},
      ask_models);
}

}  // namespace stepsim
