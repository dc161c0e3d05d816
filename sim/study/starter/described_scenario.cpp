#include "sim/study/starter/described_scenario.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "costmodel/model/model_presets.h"
#include "sim/parallel/parallelism.h"
#include "sim/parallel/shardings.h"

namespace stepsim {

namespace {

/// A text as TOML writes it, whose escapes are those of JSON.
std::string quoted(const std::string& text) {
  return Json(text).dump();
}

/// The preset of this name; null: it is a file.
const ModelPreset* preset_of(const std::string& model) {
  const auto found = std::ranges::find_if(
      model_presets(), [&](const ModelPreset& preset) { return preset.config.name == model; });
  return found == model_presets().end() ? nullptr : &*found;
}

/// Whether the weights are of 16 bit, and what is made of them, too.
bool is_all_bf16(const DescribedTraining& training) {
  const ModelPreset* const preset = preset_of(training.model);
  return preset != nullptr && preset->config.parameter_dtype == Dtype::Bf16;
}

/// What weights of 16 bit mean, and the lines of the usual recipe, to be uncommented.
constexpr const char* kAllBf16 =
    "# This preset has all in bf16: weights, gradients and AdamW's two moments, 8 bytes a "
    "parameter,\n"
    "# and so are they reduced. Trainings commonly keep f32 ones, 16 bytes, and compute in "
    "bf16:\n"
    "# parameter_dtype = \"f32\"  # under fsdp2 param_dtype and reduce_dtype in [parallel], too\n";

std::string model_lines(const DescribedTraining& training) {
  const std::string& model = training.model;
  const bool is_preset = preset_of(model) != nullptr;
  const bool is_file = !is_preset && model.find_first_of("./") != std::string::npos;
  std::string text =
      is_file ? fmt::format(
                    "config = {}  # transformers' file; stepsim models FILE shows what it makes\n",
                    quoted(model))
              : fmt::format(
                    "preset = {}  # stepsim models lists them; a config.json: config = \"FILE\"\n",
                    quoted(model));
  if (!training.dtype.empty()) {
    text += fmt::format("dtype = {}  # what the profile has costs of\n", quoted(training.dtype));
  }
  text += training.flash ? "attention = \"flash\"\n" : "";
  return text + (is_all_bf16(training) ? kAllBf16 : "");
}

/// The value that a key has by itself, as sharding_settings() writes it; empty where it has none.
std::string default_of(const std::string& kind, const std::string& key) {
  if (key == "ddp.zero_stage") {
    return "0";
  }
  for (const OwnKey& own : parallelism_named(kind).keys()) {
    if ("parallel." + own.name == key) {
      const auto* const text = std::get_if<std::string>(&own.fallback);
      const auto* const number = std::get_if<std::int64_t>(&own.fallback);
      return text != nullptr ? quoted(*text) : number != nullptr ? std::to_string(*number) : "";
    }
  }
  return "";
}

/// The tables [parallel] and [ddp], where they say more than that it is DDP.
std::string parallel_lines(const DescribedTraining& training) {
  constexpr const char* kOthers = "  # --over parallel=ddp,zero1,zero2,fsdp2,hsdp compares them\n";
  const std::string& name = training.parallel;
  if (std::ranges::count(sharding_names(), name) == 0) {
    return fmt::format("[parallel]\nkind = {}{}\n", quoted(name), kOthers);
  }
  const auto settings = sharding_settings(name);
  const std::string& kind = settings.front().second;
  std::string parallel;
  std::string ddp;
  for (const auto& [key, value] : settings) {
    const std::size_t dot = key.find('.');
    if (key != "parallel.kind" && value != default_of(kind, key)) {
      (key.starts_with("ddp.") ? ddp : parallel) +=
          fmt::format("{} = {}\n", key.substr(dot + 1), value);
    }
  }
  if (!ddp.empty()) {
    ddp = fmt::format("[ddp]\n{}\n", ddp);
  }
  if (kind == "ddp") {
    return ddp;
  }
  if (kind == "fsdp2" && is_all_bf16(training)) {
    parallel +=
        "# param_dtype = \"bf16\"  # with model.parameter_dtype = \"f32\": gathers of bf16,\n"
        "# reduce_dtype = \"f32\"  # and sums of f32\n";
  }
  return fmt::format("[parallel]\nkind = {}{}{}\n", quoted(kind), kOthers, parallel) + ddp;
}

std::string cluster_lines(const DescribedTraining& training) {
  const bool by_nodes = training.gpus.find_first_not_of("0123456789") != std::string::npos;
  return fmt::format(
      "{}  # a rank a GPU\nprofile = {}  # stepsim profiles lists those that are shipped\n",
      by_nodes ? fmt::format("placement = {}", quoted(training.gpus))
               : fmt::format("ranks = {}", training.gpus),
      quoted(training.profile));
}

std::string data_lines(const DescribedTraining& training) {
  return training.lengths.empty()
             ? fmt::format(
                   "samples = {}\nlengths = {{ constant = {} }}  # of your own: {{ file = "
                   "\"lengths.txt\" }}, the tokens of a sample a line\n",
                   training.samples,
                   training.length)
             : fmt::format("lengths = {{ file = {}{} }}  # the tokens of a sample a line{}\n",
                           quoted(training.lengths),
                           training.cap > 0 ? fmt::format(", cap = {}", training.cap) : "",
                           training.cap > 0 ? "; cut to what the model takes" : "");
}

}  // namespace

std::string described_scenario(const DescribedTraining& training, const DescribedLengths& lengths) {
  const auto budget =
      std::max<std::int64_t>(std::llround(static_cast<double>(training.batch_size) * lengths.mean),
                             lengths.longest);  // A batch holds one sample at least.
  std::string text = fmt::format(
      "# Made by stepsim init. Edit it: stepsim keys lists all that can stand here, stepsim "
      "policies the\n# ways to batch. stepsim keys --schema makes a schema by which editors check "
      "it.\n\n"
      "[scenario]\n"
      "name = {}\n"
      "question = \"Which batches, and how long does training take?\"\n"
      "seed = 1\n"
      "steps = 12  # more steps see more of the data\n"
      "warmup_steps = 2  # DDP rebuilds its buckets in the first step\n\n"
      "[cluster]\n{}\n"
      "[model]\n{}\n",
      quoted(training.name),
      cluster_lines(training),
      model_lines(training));
  text += parallel_lines(training);
  text += fmt::format(
      "[optimizer]\nkind = \"adamw\"\n\n"
      "[data]\n{}"
      "sampler = {{ kind = \"distributed\", shuffle = true }}\n\n"
      "# As many samples a batch as now, as they come.\n"
      "[[policy]]\nname = \"fixed\"\nkind = \"fixed\"\nbatch_size = {}\n\n"
      "# Each rank sorts by length and shuffles its batches: padding goes.\n"
      "[[policy]]\nname = \"bucketed\"\nkind = \"bucketed\"\nbatch_size = {}\n\n"
      "# As many padded tokens a batch as a mean one of \"fixed\" has useful ones.\n"
      "[[policy]]\nname = \"token_budget\"\nkind = \"token_budget\"\nmax_tokens = {}\n"
      "weighting = \"sample\"  # ranks hold different numbers of samples\n",
      data_lines(training),
      training.batch_size,
      training.batch_size,
      budget);
  return text;
}

}  // namespace stepsim
