#include "sim/study/starter/starter_scenario.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_file.h"
#include "costmodel/io/json_lines.h"
#include "costmodel/model/transformer.h"
#include "sim/study/starter/recorded_settings.h"

namespace stepsim {
namespace {

constexpr std::int64_t kMostSamples = 100'000;  ///< More would only take time to plan.
constexpr int kMostSteps = 200;
constexpr int kWarmupSteps = 2;

/// What the records say of the batches.
struct RecordedBatches {
  std::map<std::int64_t, std::int64_t> lengths;  ///< Samples of each length, one pass of the data.
  std::int64_t samples = 0;
  std::int64_t steps = 0;        ///< Of the first record.
  std::int64_t batch_size = 0;   ///< Their mean.
  std::int64_t mean_tokens = 0;  ///< Padded tokens of a micro-batch.
  std::int64_t most_tokens = 0;
  std::int64_t micro_batches = 1;
  bool reduces_all = false;  ///< In every micro-batch, and not only in a step's last one.
  bool packed = true;        ///< Whether no batch was padded although lengths differ.

  [[nodiscard]] double mean_length() const {
    double sum = 0;
    for (const auto& [length, count] : lengths) {
      sum += static_cast<double>(length) * static_cast<double>(count);
    }
    return sum / static_cast<double>(samples);
  }
  /// Tokens of the sample of a mean token.
  [[nodiscard]] double mean_length_of_token() const {
    double squares = 0;
    double sum = 0;
    for (const auto& [length, count] : lengths) {
      const auto tokens = static_cast<double>(length) * static_cast<double>(count);
      sum += tokens;
      squares += tokens * static_cast<double>(length);
    }
    return squares / sum;
  }
  [[nodiscard]] std::int64_t longest() const { return lengths.rbegin()->first; }
  [[nodiscard]] bool has_one_length() const { return lengths.size() == 1; }
};

RecordedBatches recorded_batches(std::span<const RecordFile> records) {
  RecordedBatches batches;
  std::int64_t rows = 0;
  double samples = 0;
  double tokens = 0;
  bool differ = false;
  for (const RecordFile& file : records) {
    for (const StepRecord& step : file.record.steps) {
      if (step.samples == 0) {
        continue;
      }
      if (step.lengths.empty()) {
        throw InputError(SourcePlace{file.file},
                         "holds no lengths of samples; give them to the recorder: "
                         "recorder.step(lengths=…)");
      }
      batches.micro_batches = std::max(batches.micro_batches, step.micro_batches);
      batches.reduces_all = batches.reduces_all || reduces_every_micro_batch(step);
      batches.most_tokens = std::max(batches.most_tokens, step.padded_tokens / step.micro_batches);
      rows += step.micro_batches;
      samples += static_cast<double>(step.samples);
      tokens += static_cast<double>(step.padded_tokens);
      differ = differ || std::ranges::min(step.lengths) != std::ranges::max(step.lengths);
      batches.packed = batches.packed && step.padded_tokens == step.useful_tokens;
      if (step.repeat == 0) {
        for (const std::int64_t length : step.lengths) {
          ++batches.lengths[std::max<std::int64_t>(length, 1)];
          ++batches.samples;
        }
      }
    }
  }
  if (batches.lengths.empty()) {
    throw InputError(SourcePlace{records.front().file},
                     "holds no samples; give the tokens of each one to the recorder: "
                     "recorder.step(lengths=…)");
  }
  batches.packed = batches.packed && differ;
  for (const StepRecord& step : records.front().record.steps) {
    batches.steps = std::max<std::int64_t>(batches.steps, step.repeat == 0 ? step.step + 1 : 0);
  }
  batches.batch_size = std::max<std::int64_t>(std::llround(samples / static_cast<double>(rows)), 1);
  batches.mean_tokens = std::llround(tokens / static_cast<double>(rows));
  return batches;
}

std::string model_text(const RunRecord& record, const RecordedFlops& flops) {
  const Json buffers = told(record, "model", "buffers");
  const bool sends_buffers = buffers.is_object() && !buffers.empty();
  const char* const note = sends_buffers ? "; its forward holds the broadcasts of buffers" : "";
  if (!flops.config_json.empty()) {
    return fmt::format(
        "[model]\nconfig = \"config.json\"  # the model that the profile was made from{}\n"
        "architecture = {}\n",
        note,
        json_text(flops.architecture));
  }
  std::string text = fmt::format(
      "[model]\nkind = \"recorded\"  # the model that the profile was made from{}\n", note);
  if (flops.per_token) {
    text += fmt::format("flops_per_token = {:.6g}  # {}\n", *flops.per_token, flops.formula);
  }
  return text;
}

/// What the ranks' device reaches at most, where that is known.
std::string peak_text(const RecordedFlops& flops) {
  return flops.peak_tflops
             ? fmt::format(
                   "peak_tflops = {:g}  # {}\n", *flops.peak_tflops, printable(flops.peak_source))
             : "";
}

std::string optimizer_text(const RunRecord& record) {
  const Json kind = told(record, "optimizer", "kind");
  if (kind == "SGD") {
    const Json settings = told(record, "optimizer", "settings");
    const Json momentum = settings.is_object() ? settings.value("momentum", Json(0)) : Json(0);
    const bool has_state = momentum.is_number() && momentum.get<double>() > 0;
    return fmt::format("[optimizer]\nkind = \"sgd\"\nstate_bytes_per_parameter = {}\n\n",
                       has_state ? 4 : 0);
  }
  return "[optimizer]\nkind = \"adamw\"  # its time is the record's, whatever its name\n\n";
}

std::string loader_text(const RunRecord& record) {
  std::string text;
  const Json workers = told(record, "loader", "workers");
  if (workers.is_number_integer() && workers.get<std::int64_t>() > 0) {
    text += fmt::format(
        "# {} loader workers: the time that the loop waited for them is in the profile.\n",
        workers.get<std::int64_t>());
  }
  const Json shuffle = told(record, "loader", "shuffle");
  const Json drop_last = told(record, "loader", "drop_last");
  const auto is = [](const Json& value, bool wanted) {
    return value.is_boolean() && value.get<bool>() == wanted;
  };
  // A record of several epochs that BatchSampler formed has other batches in each.
  text += fmt::format(
      "sampler = {{ kind = \"distributed\", shuffle = {}, drop_last = {}, set_epoch = true }}\n",
      !is(shuffle, false),
      is(drop_last, true));
  return text;
}

std::string policy_text(const char* comment, const std::string& name, const std::string& keys) {
  return fmt::format("\n# {}\n[[policy]]\nname = {}\n{}\n", comment, json_text(name), keys);
}

/// Whether TOML's basic strings can hold the name as it stands.
bool is_plain(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  });
}

std::string packing_policies(const RecordedBatches& batches) {
  const std::int64_t capacity = std::max(batches.most_tokens, batches.longest());
  const auto keys = [capacity](const char* kind) {
    return fmt::format("kind = \"{}\"\ncapacity = {}", kind, capacity);
  };
  return policy_text(
             "One row of tokens a batch, as full as the largest recorded one: TRL's "
             "packing, strategy bfd.",
             "packed_bfd",
             keys("packed_bfd")) +
         policy_text(
             "The same in the loader's order, equally full on all ranks: "
             "multipack_sampler.",
             "multipack",
             keys("multipack"));
}

std::string padding_policies(const RecordedBatches& batches) {
  const auto sized = [&](const char* kind) {
    return fmt::format("kind = \"{}\"\nbatch_size = {}", kind, batches.batch_size);
  };
  const std::int64_t budget = std::max(batches.mean_tokens, batches.longest());
  return policy_text(
             "Each rank sorts its samples by length, cuts batches and shuffles them: "
             "padding goes, order changes most.",
             "bucketed",
             sized("bucketed")) +
         policy_text(
             "Hugging Face Trainer(group_by_length=True): sorts within mega-batches of "
             "random samples.",
             "group_by_length",
             sized("hf_group_by_length")) +
         policy_text(
             "Batches of as many padded tokens as the mean recorded one, of samples of "
             "similar length.",
             "token_budget",
             fmt::format("kind = \"token_budget\"\nmax_tokens = {}\nweighting = \"sample\"",
                         budget)) +
         policy_text(
             "The same budget over batches sorted for all ranks together: fairseq --max-tokens.",
             "max_tokens",
             fmt::format("kind = \"fairseq_max_tokens\"\nmax_tokens = {}\n"
                         "required_batch_size_multiple = 1\nweighting = \"sample\"",
                         budget)) +
         policy_text(
             "The recorded global batches, dealt to the ranks by length: Hugging Face "
             "Trainer's batch_rebalance.",
             "batch_rebalance",
             sized("batch_rebalance") + "\nweighting = \"sample\"") +
         policy_text(
             "Stepsim's own: by predicted time, within windows of 64 steps. Train with "
             "the plan that stepsim plan writes.",
             "planner",
             sized("planner") + "\nweighting = \"sample\"");
}

/// The policies to try; none where all are the same, with one length for all.
std::string other_policies(const RecordedBatches& batches) {
  if (batches.has_one_length()) {
    return "";
  }
  return batches.packed ? packing_policies(batches) : padding_policies(batches);
}

/// About an epoch, in whole repeats of the recorded steps where these are not too many.
std::int64_t steps_to_predict(std::int64_t epoch, std::int64_t recorded) {
  if (recorded > kMostSteps) {
    return kMostSteps;
  }
  const std::int64_t repeats = (epoch + recorded - 1) / recorded;
  return recorded * std::clamp<std::int64_t>(repeats, 1, kMostSteps / recorded);
}

/// Whether the batches of all steps are known one by one, as many in each.
bool knows_batches(const RunRecord& record, std::int64_t micro_batches) {
  return std::ranges::all_of(record.steps, [&](const StepRecord& step) {
    return step.micro_batches == micro_batches && std::ssize(step.lengths) == step.samples &&
           (micro_batches == 1 || !step.micro_batch_samples.empty());
  });
}

/// The policy that stands for what was recorded.
std::string recorded_policy(const StarterScenario& starter, const RecordedBatches& batches) {
  if (starter.plays) {
    return policy_text("What was recorded, batch by batch.",
                       starter.now,
                       "kind = \"plan\"\nfile = \"recorded.jsonl\"\nreference = false");
  }
  return policy_text(
      fmt::format(
          "The recorded mean batch size in the loader's order: the record does not tell the "
          "{} micro-batches of its steps apart.",
          batches.micro_batches)
          .c_str(),
      starter.now,
      fmt::format("kind = \"fixed\"\nbatch_size = {}", batches.batch_size));
}

std::string lengths_text(const RecordedBatches& batches) {
  Json counts = Json::object();
  for (const auto& [length, count] : batches.lengths) {
    counts[std::to_string(length)] = count;
  }
  const Json json = {{"format", "stepsim-lengths/1"},
                     {"id", "recorded"},
                     {"description", "lengths of the recorded samples"},
                     {"unit", "tokens"},
                     {"counts", counts}};
  return json.dump(1) + "\n";
}

}  // namespace

StarterScenario starter_scenario(std::span<const RecordFile> records,
                                 const std::string& name,
                                 bool own_lengths,
                                 const StatedFlops& stated) {
  const RunRecord& first = records.front().record;
  for (const RecordFile& file : records) {
    if (file.record.world_size != first.world_size) {
      throw InputError(SourcePlace{file.file},
                       "recorded on {} ranks, {} on {}; give the records of one training",
                       file.record.world_size,
                       records.front().file,
                       first.world_size);
    }
  }
  const RecordedBatches batches = recorded_batches(records);
  StarterScenario result;
  const std::string others = other_policies(batches);
  const bool is_free =
      others.find(fmt::format("name = {}\n", json_text(first.policy))) == std::string::npos;
  result.now = is_plain(first.policy) && is_free ? first.policy : "recorded";
  result.plays = knows_batches(first, batches.micro_batches);
  result.mean_length = batches.mean_length();
  const Json known = told(first, "loader", "samples");
  result.samples = known.is_number_integer() && known.get<std::int64_t>() > 0
                       ? known.get<std::int64_t>()
                       : batches.samples;
  const RecordedFlops flops = recorded_flops(first, stated, batches.mean_length_of_token());
  result.config_json = flops.config_json;
  const std::int64_t samples =
      std::max<std::int64_t>(std::min(result.samples, kMostSamples), first.world_size);
  const std::int64_t epoch =
      samples / (batches.batch_size * batches.micro_batches * first.world_size);
  const std::int64_t steps = kWarmupSteps + steps_to_predict(epoch, batches.steps);
  result.lengths = lengths_text(batches);
  result.toml = fmt::format(
      "# Made by stepsim advise from {}. Edit it: add policies (stepsim policies), change keys.\n"
      "# Every command takes it, e.g. stepsim compare or sweep.\n\n"
      "[scenario]\nname = {}\n"
      "question = \"Which batching policy and bucket size suit this training?\"\n"
      "seed = 1\nsteps = {}\nwarmup_steps = {}  # DDP rebuilds its buckets in the first step\n\n"
      "[cluster]\nranks = {}  # as recorded: other numbers need all-reduce times of their own\n"
      "profile = \"profile.json\"\n{}\n",
      records.size() == 1 ? "a run record" : fmt::format("{} run records", records.size()),
      json_text(name),
      steps,
      kWarmupSteps,
      first.world_size,
      peak_text(flops));
  result.toml += model_text(first, flops) + "\n" + ddp_text(first);
  if (batches.micro_batches > 1) {
    result.toml += fmt::format("accumulation_steps = {}\n", batches.micro_batches);
    if (batches.reduces_all) {
      result.toml += "no_sync = false  # gradients were reduced in every micro-batch\n";
    }
  }
  if (const std::string parallel = parallel_text(first); !parallel.empty()) {
    result.toml += "\n" + parallel;
    result.toml += batches.micro_batches > 1
                       ? "# The record does not tell how micro-batches accumulate: accumulation is "
                         "PyTorch's default.\n"
                       : "";
  }
  result.toml += "\n" + optimizer_text(first);
  result.toml += "[data]\n";
  if (own_lengths) {
    result.toml += "lengths = { file = \"lengths.txt\" }  # one a line, in the data set's order\n";
  } else {
    result.toml += fmt::format(
        "samples = {}{}\nlengths = {{ histogram = \"lengths.json\", seed = 1 }}  # of {} "
        "recorded samples\n",
        samples,
        samples < result.samples
            ? fmt::format("  # of the {} in the data set, to plan quickly", result.samples)
            : "",
        batches.samples);
  }
  result.toml += loader_text(first) + recorded_policy(result, batches) + others;
  return result;
}

}  // namespace stepsim
