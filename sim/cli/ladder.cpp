#include "sim/study/ladder.h"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/predict/run/jobs.h"
#include "sim/predict/step_cost.h"
#include "sim/report/ladder_report.h"

namespace stepsim {

namespace {

struct LadderQuestion {
  std::string policy;
  std::string shape_cost;
  std::vector<std::int64_t> rungs = {8, 32};
  std::vector<std::int64_t> multiples = {8, 64, 128};
  std::vector<std::int64_t> step = {1};
  std::string key;
};

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

/// What the option says of one shape, else the scenario or its profile.
NewShapeCost shapes_of(const Request& request,
                       const LadderQuestion& options,
                       const Scenario& scenario,
                       const Profile& profile) {
  NewShapeCost shapes;
  if (options.shape_cost.empty()) {
    const auto known = new_shape_cost(scenario, profile);
    if (!known) {
      request.fail(
          "give --shape-cost TIME: what a new shape costs a rank, as \"500 ms\" (cuDNN's attention "
          "takes 20 ms to 1 s); neither [new_shapes] nor the profile says it");
    }
    shapes = *known;
  } else {
    const SourcePlace place{"--shape-cost " + options.shape_cost};
    try {
      shapes.seconds = to_seconds(parse_duration(options.shape_cost));
    } catch (const InputError& error) {
      throw InputError(place, error.what());
    }
    if (!(shapes.seconds > 0)) {
      throw InputError(place, "a new shape costs more than nothing");
    }
  }
  const std::string& key = options.key;
  if (!key.empty() && key != "samples-length" && key != "length") {
    throw InputError(SourcePlace{"--key " + key}, "expected samples-length or length");
  }
  if (!key.empty()) {
    shapes.key = key == "length" ? ShapeKey::Length : ShapeKey::SamplesAndLength;
  }
  return shapes;
}

LadderOptions ladder_options(const LadderQuestion& question, const NewShapeCost& shapes) {
  LadderOptions options;
  options.shape_seconds = shapes.seconds;
  options.key = shapes.key;
  options.step = question.step.front();
  options.multiples = question.multiples;
  options.rungs = question.rungs;
  return options;
}

Answer ask_ladder(const Request& request, const LadderQuestion& asked) {
  if (asked.step.size() > 1) {
    request.fail("--step takes one number");
  }
  const Scenario scenario = read_asked(request);
  std::vector<BatchingPolicy> policies = scenario.policies;
  if (!asked.policy.empty()) {
    policies = {find_policy(scenario, asked.policy)};
  }
  Jobs jobs(scenario);
  LadderOptions options =
      ladder_options(asked, shapes_of(request, asked, scenario, *jobs.profile(scenario)));
  Progress progress("padding an epoch");
  const ProgressCallback report = progress.callback();
  std::vector<LadderStudy> studies;
  for (const BatchingPolicy& policy : policies) {
    options.on_progress = [&](double share) {
      report((static_cast<double>(studies.size()) + share) / static_cast<double>(policies.size()));
    };
    studies.push_back(study_ladders(jobs.job(policy.name(), {}), options));
  }
  progress.done();
  options.on_progress = nullptr;
  const auto is_padded = [](const LadderStudy& study) { return study.skipped.empty(); };
  const auto has_best = [](const LadderStudy& study) { return study.best.has_value(); };
  Answer answer;
  answer.status = std::ranges::any_of(studies, is_padded) && std::ranges::none_of(studies, has_best)
                      ? kAnswerIsNo
                      : kDone;
  answer.text = [=](const Screen& screen) {
    return ladder_text(scenario, options, studies, screen);
  };
  answer.json = [=] { return ladder_json(scenario, options, studies); };
  answer.csv = [=] { return ladder_csv(studies); };
  return answer;
}

}  // namespace

Question ladder_question() {
  const auto numbers = [](const char* name, auto member, const char* words) {
    return option(name, member, words).from(1).up_to(kMaxSampleLength);
  };
  return question(
      "ladder",
      "the lengths to pad batches to, where new shapes cost",
      kLadderUsage,
      option_table(
          {scenario_options(),
           {option("policy", &LadderQuestion::policy, "POLICY: of the scenario"),
            option("shape-cost",
                   &LadderQuestion::shape_cost,
                   "TIME: of a new shape on a rank, as \"500 ms\"; else as the scenario or its "
                   "profile says"),
            numbers("rungs", &LadderQuestion::rungs, "K[,K…]: at most so many lengths"),
            numbers("multiples", &LadderQuestion::multiples, "N[,N…]: multiples to try"),
            numbers("step", &LadderQuestion::step, "N: lengths of ladders are multiples of it"),
            option("key",
                   &LadderQuestion::key,
                   "samples-length|length: what makes a shape another one; as the scenario says, "
                   "else samples-length")}}),
      ask_ladder);
}

}  // namespace stepsim
