#include "sim/study/starter/recorded_flops.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/transformer.h"
#include "sim/study/starter/recorded_settings.h"
#include "sim/study/training/training_plan.h"

namespace stepsim {
namespace {

using NamesAndShapes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

/// One parameter of a record's header.
struct RecordedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype;
  bool frozen = false;
  bool lookup = false;  ///< Of an embedding alone.

  [[nodiscard]] double elements() const {
    double product = 1;
    for (const std::int64_t extent : shape) {
      product *= static_cast<double>(extent);
    }
    return product;
  }
};

/// Empty where the record describes no model, or not as recorders do.
std::vector<RecordedParameter> recorded_parameters(const RunRecord& record) {
  std::vector<RecordedParameter> parameters;
  try {
    for (const Json& told_one : told(record, "model", "parameters")) {
      parameters.push_back({told_one.at("name").get<std::string>(),
                            told_one.at("shape").get<std::vector<std::int64_t>>(),
                            told_one.at("dtype").get<std::string>(),
                            told_one.value("frozen", false),
                            told_one.value("lookup", false)});
    }
  } catch (const Json::exception&) {
    return {};  // The import says what is wrong with it.
  }
  return parameters;
}

NamesAndShapes trained_tensors(const std::vector<RecordedParameter>& parameters) {
  NamesAndShapes tensors;
  for (const RecordedParameter& parameter : parameters) {
    if (!parameter.frozen) {
      tensors.emplace_back(parameter.name, parameter.shape);
    }
  }
  return tensors;
}

/// Takes the config.json where transformers makes these tensors of it. Raises InputError where it
/// cannot, with the file's name.
void take_config(const std::string& text,
                 const std::string& file,
                 const std::string& architecture,
                 const NamesAndShapes& recorded,
                 RecordedFlops& flops) {
  const TransformerConfig model = transformers_model(text, architecture, file);
  NamesAndShapes made;
  for (const Parameter& parameter : parameters(model)) {
    made.emplace_back(parameter.name, parameter.shape);
  }
  if (made != recorded) {
    const auto different = std::ranges::mismatch(made, recorded);
    throw InputError(
        SourcePlace{file},
        "makes another model than the recorded one: {} trained tensors, {} in the record; the "
        "first that differs is {}. Give --flops-per-token in its place",
        made.size(),
        recorded.size(),
        printable(different.in2 != recorded.end() ? different.in2->first : different.in1->first));
  }
  flops.config_json = text;
  flops.architecture = model.architecture;
}

/// Whether each weight surely meets each token once.
bool is_dense(const std::vector<RecordedParameter>& parameters) {
  return std::ranges::none_of(parameters, [](const RecordedParameter& one) {
    const bool is_quantized = one.dtype.ends_with('8') || one.dtype.find("8_") != std::string::npos;
    return one.shape.size() > 2 || is_quantized || one.name.find("expert") != std::string::npos;
  });
}

/// FLOPs by the weights, and what attention adds; nothing where the record does not tell.
void count_weights(const RunRecord& record,
                   const std::vector<RecordedParameter>& parameters,
                   double mean_length,
                   RecordedFlops& flops) {
  const bool tells_lookups = std::ranges::any_of(parameters, &RecordedParameter::lookup);
  if (!tells_lookups || !is_dense(parameters)) {
    return;
  }
  constexpr double kTrained = 6;  // A product of forward, input's gradient and weight's gradient.
  constexpr double kFrozen = 4;
  double trained = 0;
  double frozen = 0;
  for (const RecordedParameter& one : parameters) {
    if (one.shape.size() == 2 && !one.lookup) {
      (one.frozen ? frozen : trained) += one.elements();
    }
  }
  double sum = kTrained * trained + kFrozen * frozen;
  flops.formula = fmt::format("6 x {:.0f} weights that are multiplied", trained);
  if (frozen > 0) {
    flops.formula += fmt::format(", 4 x {:.0f} frozen ones", frozen);
  }
  const Json attention = told(record, "model", "attention");
  if (attention.is_object() && attention.value("layers", Json()).is_number_unsigned() &&
      attention.value("width", Json()).is_number_unsigned()) {
    const auto layers = attention["layers"].get<double>();
    const auto width = attention["width"].get<double>();
    sum += 2 * kTrained * layers * width * mean_length;
    flops.formula += fmt::format(
        ", attention 12 x {:g} layers x {:g} wide x {:.0f} tokens", layers, width, mean_length);
  } else {
    flops.formula += "; attention is not counted";
  }
  flops.per_token = sum > 0 ? std::optional(sum) : std::nullopt;
}

/// The model's FLOPs, by the first that says so.
void count(const RunRecord& record,
           const StatedFlops& stated,
           double mean_length,
           RecordedFlops& flops) {
  if (stated.per_token) {
    flops.per_token = stated.per_token;
    flops.formula = "as --flops-per-token said";
    return;
  }
  const std::vector<RecordedParameter> parameters = recorded_parameters(record);
  const Json name = told(record, "model", "name");
  const std::string architecture = name.is_string() ? name.get<std::string>() : "";
  if (!stated.config.empty()) {
    take_config(
        read_text(stated.config), stated.config, architecture, trained_tensors(parameters), flops);
    return;
  }
  if (const Json config = told(record, "model", "config"); config.is_object()) {
    try {
      take_config(
          config.dump(1) + "\n", "config", architecture, trained_tensors(parameters), flops);
      return;
    } catch (const InputError&) {
      flops.config_json.clear();  // A model of its own, of which only the weights are known.
    }
  }
  count_weights(record, parameters, mean_length, flops);
}

}  // namespace

RecordedFlops recorded_flops(const RunRecord& record,
                             const StatedFlops& stated,
                             double mean_length) {
  RecordedFlops flops;
  count(record, stated, mean_length, flops);
  if (stated.peak_tflops) {
    flops.peak_tflops = stated.peak_tflops;
    flops.peak_source = "as --peak-tflops said";
    return flops;
  }
  const Json& training = *record.training;
  const Json autocast = training.is_object() ? training.value("autocast", Json()) : Json();
  if (autocast == "bf16" || autocast == "f16") {
    constexpr double kTera = 1e12;
    if (const auto peak = peak_flops(record.device, Dtype::Bf16)) {
      flops.peak_tflops = *peak / kTera;
      flops.peak_source =
          fmt::format("dense, {} autocast on {}", autocast.get<std::string>(), record.device);
    }
  }
  return flops;
}

}  // namespace stepsim
