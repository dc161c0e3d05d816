#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/trimmed.h"
#include "costmodel/io/atomic_file.h"
#include "costmodel/io/text_file.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/network/placement.h"
#include "costmodel/records/profile.h"
#include "sim/ask/question.h"
#include "sim/batching/lengths.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/scenario/scenario.h"
#include "sim/study/starter/described_scenario.h"
#include "sim/study/starter/described_trial.h"

namespace stepsim {

namespace {

namespace fs = std::filesystem;

struct InitOptions {
  std::string out = "scenario.toml";
  std::string model;
  std::string gpus;
  std::string profile;
  std::string lengths;
  std::optional<std::int64_t> length;
  std::optional<std::int64_t> batch_size;
  std::string parallel;
};

constexpr const char* kInitUsage =
    "usage: stepsim init [--model MODEL] [--gpus GPUS] [--profile PROFILE] [--lengths FILE] "
    "[options]\n\n"
    "Writes a scenario with comments, for a training that nobody has run yet: a model by its\n"
    "config.json or a preset, the GPUs, and the lengths of the data. On a terminal it asks for\n"
    "what is not given. Of a training that runs, its record makes a better one: stepsim advise.\n\n"
    "examples:\n"
    "  stepsim init --model llama3-8b --gpus 8 --profile h100_8x_published --length 4096\n"
    "  stepsim init --model config.json --gpus 2x8 --profile h100_2x8_published --lengths "
    "lengths.txt\n";

/// Raises InputError where an answer cannot be meant.
using AnswerCheck = std::function<void(const std::string& answer)>;

/// Asks on the terminal until the answer can be meant; an empty line is the answer that is offered.
std::string asked(const std::string& question,
                  const std::string& offered,
                  const AnswerCheck& check) {
  for (;;) {
    fmt::print(stderr, "{}{}: ", question, offered.empty() ? "" : fmt::format(" [{}]", offered));
    std::string line;
    if (!std::getline(std::cin, line)) {
      return offered;
    }
    const std::string given(trimmed(line));
    std::string answer = given.empty() ? offered : given;
    try {
      check(answer);
      return answer;
    } catch (const InputError& error) {
      fmt::print(stderr, "  {}\n", error.what());
    }
  }
}

void check_model(const std::string& model) {
  if (model.empty()) {
    throw InputError("there is no default: llama3-8b is one of those that stepsim models lists");
  }
  if (fs::exists(model)) {
    require_kept_file(model);
    return;
  }
  if (model.ends_with(".json")) {
    throw InputError("there is no file {} here", printable(model));
  }
  (void)model_preset(model);
}

void check_gpus(const std::string& gpus) {
  (void)parse_placement(gpus);
}

void check_profile(const std::string& profile) {
  require_kept_file(profile);
  (void)read_profile(profile);
}

void check_lengths(const std::string& file) {
  require_kept_file(file);
  if (!file.empty() && !fs::exists(file)) {
    throw InputError("there is no file {} here; an empty line: all samples are alike",
                     printable(file));
  }
}

void check_count(const std::string& count) {
  const auto number = parse_number<std::int64_t>(count);
  if (!number || *number < 1) {
    throw InputError("'{}' is no whole number from 1 on", printable(count));
  }
}

/// What the options say, and what a user at a terminal answers. `assumed`: is told the options that
/// nobody was asked for, with the values that they get.
DescribedTraining described(const Request& request,
                            const InitOptions& options,
                            std::vector<std::string>& assumed) {
  const bool asks = isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
  DescribedTraining training;
  const auto answer = [&](const std::string& option,
                          const std::string& given,
                          const std::string& question,
                          const std::string& offered,
                          const AnswerCheck& check) {
    if (!given.empty()) {
      try {
        check(given);
      } catch (const InputError& error) {
        throw InputError(SourcePlace{option + " " + given}, error.what(), error.lookup());
      }
      return given;
    }
    if (asks) {
      return asked(question, offered, check);
    }
    if (!offered.empty()) {
      assumed.push_back(option + " " + offered);
    }
    return offered;
  };
  const auto count = [&](const std::string& option,
                         const std::optional<std::int64_t>& given,
                         const std::string& question,
                         std::int64_t offered) {
    const std::string text = given ? std::to_string(*given) : "";
    return *parse_number<std::int64_t>(
        answer(option, text, question, std::to_string(offered), check_count));
  };
  if (asks) {
    fmt::print(
        stderr, "Writes {}. An empty line takes what is in brackets.\n\n", printable(options.out));
  }
  training.model = answer("--model",
                          options.model,
                          "Model, a config.json or a preset (stepsim models)",
                          "",
                          check_model);
  if (training.model.empty()) {
    request.fail("give --model: a config.json, or a preset that stepsim models lists");
  }
  training.gpus = answer("--gpus", options.gpus, "GPUs, as 8 or by nodes as 2x8", "8", check_gpus);
  training.profile = answer("--profile",
                            options.profile,
                            "Profile of the machine (stepsim profiles)",
                            "h100_8x_published",
                            check_profile);
  training.lengths = options.length
                         ? options.lengths
                         : answer("--lengths",
                                  options.lengths,
                                  "File of the tokens of each sample (none: all are alike)",
                                  "",
                                  check_lengths);
  training.length =
      training.lengths.empty()
          ? count("--length", options.length, "Tokens of every sample", training.length)
          : options.length.value_or(training.length);
  training.batch_size =
      count("--batch-size", options.batch_size, "Samples of a GPU's batch", training.batch_size);
  if (!options.parallel.empty()) {
    training.parallel = answer("--parallel", options.parallel, "", "", check_sharding);
  }
  training.name = fs::path(options.out).stem().string();
  return training;
}

/// A path as the scenario's folder sees it.
std::string beside(const std::string& path, const std::string& scenario) {
  if (path.empty() || !fs::exists(path)) {
    return path;
  }
  return fs::proximate(path, fs::absolute(scenario).parent_path()).string();
}

/// The option that names the first policy that fits into memory, or the one that lacks least; empty
/// where that is the first of all, or nothing can be predicted yet.
std::string policy_option(const Scenario& scenario) {
  try {
    const Profile profile = scenario_profile(scenario);
    const std::vector<std::int64_t> missing =
        mapped(scenario.policies, [&](const BatchingPolicy& policy) {
          return missing_memory(scenario, policy, profile).value();
        });
    const auto least = std::ranges::min_element(missing) - missing.begin();
    return least == 0 ? "" : " --policy " + shell_word(scenario.policies[at(least)].name());
  } catch (const InputError&) {
    return "";
  }
}

/// The message alone of an error in the text of a scenario, which is no file yet.
std::string without_place(const InputError& error) {
  const std::string what = error.what();
  const std::string mark = "error: ";
  const std::size_t at = what.find(mark, error.place().file.size());
  return error.has_place() && at != std::string::npos
             ? what.substr(at + mark.size(), what.find('\n', at) - at - mark.size())
             : what;
}

[[noreturn]] void refuse(const std::string& reason, const std::string& advice) {
  throw InputError(SourcePlace{"stepsim init"},
                   "{}{}\nnothing was written, since every command would say so of it",
                   reason,
                   advice.empty() ? "" : "\n" + advice);
}

/// The scenario as the commands will read it. Refuses what they would refuse.
Scenario parsed(const std::string& text, const std::string& file) {
  try {
    return parse_scenario(text, file);
  } catch (const InputError& error) {
    refuse(without_place(error), "");
  }
}

/// The tokens of each sample of a file; none without one.
std::vector<std::int64_t> file_lengths(const std::string& file) {
  if (file.empty()) {
    return {};
  }
  LengthSource source;
  source.kind = LengthSource::Kind::File;
  source.file = file;
  return generate_lengths(source, 0);
}

DescribedLengths summed_up(const std::vector<std::int64_t>& lengths,
                           const DescribedTraining& training) {
  if (lengths.empty()) {
    return {static_cast<double>(training.length), training.length};
  }
  const auto most = training.cap > 0 ? training.cap : std::numeric_limits<std::int64_t>::max();
  const double sum =
      sum_of(lengths, [&](std::int64_t one) { return static_cast<double>(std::min(one, most)); });
  return {sum / static_cast<double>(lengths.size()),
          std::min(*std::ranges::max_element(lengths), most)};
}

/// What is written, and what to say of it.
struct Described {
  std::string text;
  Scenario scenario;
  std::vector<std::string> remarks;
};

/// Raises InputError where the commands would refuse the scenario.
Described tried(DescribedTraining training, const std::string& out) {
  take_from_profile(training);
  const std::vector<std::int64_t> lengths = file_lengths(training.lengths);
  const DescribedTraining here = training;  // Of files as they are named from this folder.
  for (std::string* path : {&training.model, &training.profile, &training.lengths}) {
    *path = beside(*path, out);
  }
  Described made;
  made.text = described_scenario(training, summed_up(lengths, training));
  made.scenario = parsed(made.text, out);
  if (const std::int64_t most = made.scenario.model.max_length; most > 0) {
    const auto longer = std::ranges::count_if(lengths, [&](auto one) { return one > most; });
    if (longer > 0) {
      training.cap = most;
      made.text = described_scenario(training, summed_up(lengths, training));
      made.scenario = parsed(made.text, out);
      made.remarks.push_back(
          fmt::format("{} of {} samples are longer than the {} tokens that {} takes: they are cut "
                      "(data.lengths.cap)",
                      longer,
                      lengths.size(),
                      most,
                      made.scenario.model.name));
    }
  }
  if (const std::string reason = refusal_of(made.scenario); !reason.empty()) {
    DescribedTraining other = here;
    other.cap = training.cap;
    refuse(reason, better_profile(other, summed_up(lengths, other)));
  }
  if (const std::string fuller = fuller_node(here, made.scenario); !fuller.empty()) {
    made.remarks.push_back(fuller);
  }
  return made;
}

Answer ask_init(const Request& request, const InitOptions& options) {
  if (fs::exists(options.out)) {
    request.fail(fmt::format("{} is there already; give --out another name", options.out));
  }
  std::vector<std::string> assumed;
  const Described made = tried(described(request, options, assumed), options.out);
  const auto& [text, scenario, remarks] = made;
  write_text_atomically(options.out, text);
  Answer answer;
  if (scenario.model.family == ModelFamily::Transformers) {
    for (const std::string& size : sizes_by_default(scenario.model)) {
      assumed.push_back(size + " (not in the config.json)");
    }
  }
  const std::string taken =
      assumed.empty() ? "" : fmt::format("assumed: {}\n", fmt::join(assumed, ", "));
  answer.text = [taken,
                 file = shell_word(options.out),
                 policies = scenario.policies.size(),
                 placed = placed_gpus(scenario),
                 told = remarks,
                 option = policy_option(scenario)](const Screen&) {
    std::string notes;
    for (const std::string& remark : told) {
      notes += "note: " + remark + "\n";
    }
    return fmt::format(
        "wrote {0}, with {1} policies, for {4}\n{3}{5}"
        "next: stepsim compare {0} --epochs 1   (which batches, and how long an epoch takes)\n"
        "      stepsim sweep {0}{2} --over parallel=ddp,zero1,fsdp2   (what fits, and what is "
        "fastest)\n"
        "      stepsim keys, stepsim policies   (what else can stand in it)\n",
        file,
        policies,
        option,
        taken,
        placed,
        notes);
  };
  answer.json = [text = text, file = options.out] { return Json{{"file", file}, {"toml", text}}; };
  return answer;
}

}  // namespace

Question init_question() {
  using Q = InitOptions;
  return question(
      "init",
      "write a scenario for a training that nobody has run yet",
      kInitUsage,
      std::vector<OptionRow>{
          option("model", &Q::model, "MODEL: a config.json, or a preset (stepsim models)"),
          option("gpus", &Q::gpus, "GPUS: as 8, or by nodes as 2x8"),
          option("profile", &Q::profile, "PROFILE: of the machine (stepsim profiles)"),
          option("lengths", &Q::lengths, "FILE: tokens of each sample, one a line"),
          option("length", &Q::length, "TOKENS: of every sample, where there is no file").from(1),
          option("batch-size", &Q::batch_size, "SAMPLES: of a rank").from(1),
          option("parallel", &Q::parallel, "KIND: ddp, zero1, zero2, fsdp2, hsdp, fsdp1 or zero"),
          option("out", &Q::out, "FILE: of the scenario").written(),
          option("json", &Outputs::json, "FILE or -: write what was made as JSON").written(),
          option("quiet,q", &Outputs::quiet, "suppress terminal output")},
      ask_init);
}

}  // namespace stepsim
