#include "sim/study/ladder.h"

#include <charconv>
#include <sstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/terminal/progress.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_cost.h"
#include "sim/report/ladder_report.h"

namespace stepsim {

namespace {

constexpr const char* kLadderUsage =
    "usage: stepsim ladder SCENARIO [--shape-cost TIME] [--policy NAME] [options]\n\n"
    "Which lengths to pad batches to, where each new shape costs a rank something the first time\n"
    "(an attention plan of cuDNN, a compiled graph): batches as they are, multiples, and the best\n"
    "ladders of a few lengths, for one policy or all.\n\n"
    "examples:\n"
    "  stepsim ladder scenarios/sst2_distilbert.toml --shape-cost \"500 ms\"\n"
    "  stepsim ladder scenarios/sst2_distilbert.toml --policy fixed --shape-cost \"5 ms\" --step "
    "8\n"
    "  stepsim ladder my_job.toml --shape-cost \"20 s\" --key length --rungs 4,8,16\n";

constexpr std::int64_t kMostListed = 20;

/// One number of an option's value.
std::int64_t ladder_number(const SourcePlace& place, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > kMaxSampleLength) {
    throw InputError(
        place, "'{}' is no whole number from 1 to {}", printable(text), kMaxSampleLength);
  }
  return value;
}

/// The numbers of an option: "8,64,128".
std::vector<std::int64_t> ladder_numbers(const OptionParser& parser, const std::string& option) {
  const SourcePlace place{"--" + option + " " + parser.text(option)};
  std::vector<std::int64_t> numbers;
  std::istringstream list(parser.text(option));
  for (std::string item; std::getline(list, item, ',');) {
    numbers.push_back(ladder_number(place, item));
  }
  if (numbers.empty() || std::ssize(numbers) > kMostListed) {
    throw InputError(place, "expected 1 to {} numbers with commas between them", kMostListed);
  }
  return numbers;
}

/// What the option says of one shape, else the scenario or its profile.
NewShapeCost shapes_of(const OptionParser& parser,
                       const Scenario& scenario,
                       const Profile& profile) {
  NewShapeCost shapes;
  if (!parser.has("shape-cost")) {
    const auto known = new_shape_cost(scenario, profile);
    if (!known) {
      parser.fail(
          "give --shape-cost TIME: what a new shape costs a rank, as \"500 ms\" (cuDNN's attention "
          "takes 20 ms to 1 s); neither [new_shapes] nor the profile says it");
    }
    shapes = *known;
  } else {
    const SourcePlace place{"--shape-cost " + parser.text("shape-cost")};
    try {
      shapes.seconds = to_seconds(parse_duration(parser.text("shape-cost")));
    } catch (const InputError& error) {
      throw InputError(place, error.what());
    }
    if (!(shapes.seconds > 0)) {
      throw InputError(place, "a new shape costs more than nothing");
    }
  }
  const std::string key = parser.text("key");
  if (!key.empty() && key != "samples-length" && key != "length") {
    throw InputError(SourcePlace{"--key " + key}, "expected samples-length or length");
  }
  if (!key.empty()) {
    shapes.key = key == "length" ? ShapeKey::Length : ShapeKey::SamplesAndLength;
  }
  return shapes;
}

LadderOptions ladder_options(const OptionParser& parser, const NewShapeCost& shapes) {
  LadderOptions options;
  options.shape_seconds = shapes.seconds;
  options.key = shapes.key;
  options.step = ladder_number({"--step " + parser.text("step")}, parser.text("step"));
  options.multiples = ladder_numbers(parser, "multiples");
  options.rungs = ladder_numbers(parser, "rungs");
  return options;
}

}  // namespace

Answer ladder_command(const Request& request) {
  OptionParser parser("ladder", kLadderUsage, request);
  parser.add_common();
  parser.add(
      {{"policy", option_value<std::string>(""), "POLICY: of the scenario"},
       {"shape-cost",
        option_text(),
        "TIME: of a new shape on a rank, as \"500 ms\"; else as the scenario or its profile says"},
       {"rungs", option_value<std::string>("8,32"), "K[,K…]: at most so many lengths"},
       {"multiples", option_value<std::string>("8,64,128"), "N[,N…]: multiples to try"},
       {"step", option_value<std::string>("1"), "N: lengths of ladders are multiples of it"},
       {"key",
        option_value<std::string>(""),
        "samples-length|length: what makes a shape another one; as the scenario says, else "
        "samples-length"}});
  if (!parser.parse()) {
    return {};
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  std::vector<BatchingPolicy> policies = scenario.policies;
  if (!parser.text("policy").empty()) {
    policies = {find_policy(scenario, parser.text("policy"))};
  }
  const Profile profile = scenario_profile(scenario);
  LadderOptions options = ladder_options(parser, shapes_of(parser, scenario, profile));
  Progress progress("padding an epoch");
  const ProgressCallback report = progress.callback();
  std::vector<LadderStudy> studies;
  for (const BatchingPolicy& policy : policies) {
    options.on_progress = [&](double share) {
      report((static_cast<double>(studies.size()) + share) / static_cast<double>(policies.size()));
    };
    studies.push_back(study_ladders(scenario, policy, profile, options));
  }
  progress.done();
  options.on_progress = nullptr;
  const auto is_padded = [](const LadderStudy& study) { return study.skipped.empty(); };
  const auto has_best = [](const LadderStudy& study) { return study.best.has_value(); };
  Answer answer;
  answer.status = std::ranges::any_of(studies, is_padded) && std::ranges::none_of(studies, has_best)
                      ? kAnswerIsNo
                      : kDone;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) {
    return ladder_text(scenario, options, studies, screen);
  };
  answer.json = [=] { return ladder_json(scenario, options, studies); };
  answer.csv = [=] { return ladder_csv(studies); };
  return answer;
}

}  // namespace stepsim
