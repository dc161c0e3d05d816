#include "sim/study/starter/described_scenario.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "costmodel/model/model_presets.h"

namespace stepsim {

namespace {

/// A text as TOML writes it, whose escapes are those of JSON.
std::string quoted(const std::string& text) {
  return Json(text).dump();
}

std::string model_lines(const DescribedTraining& training) {
  const std::string& model = training.model;
  const bool is_preset = std::ranges::any_of(
      model_presets(), [&](const ModelPreset& preset) { return preset.config.name == model; });
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
  return text + (training.flash ? "attention = \"flash\"\n" : "");
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
             : fmt::format("lengths = {{ file = {} }}  # the tokens of a sample a line\n",
                           quoted(training.lengths));
}

}  // namespace

std::string described_scenario(const DescribedTraining& training, double mean_length) {
  const auto budget = static_cast<std::int64_t>(
      std::llround(static_cast<double>(training.batch_size) * mean_length));
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
  if (training.parallel != "ddp") {
    text += fmt::format(
        "[parallel]\nkind = {}  # --over parallel=ddp,zero1,zero2,fsdp2,hsdp compares them\n\n",
        quoted(training.parallel));
  }
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
