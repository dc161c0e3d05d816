#include "sim/study/blame.h"

#include <nlohmann/json.hpp>

#include "costmodel/terminal/progress.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/blame_report.h"

namespace stepsim {

namespace {

constexpr const char* kBlameUsage =
    "usage: stepsim blame SCENARIO [--policy NAME] [options]\n\n"
    "What the step time is spent on: runs the scenario again with one thing changed (free\n"
    "communication, balanced loads, equal ranks, one bucket, …) and says what each would save.\n\n"
    "examples:\n"
    "  stepsim blame scenarios/token_skew.toml --policy variable_fixed\n"
    "  stepsim blame scenarios/bucket_valley.toml --json -\n";

}  // namespace

Answer blame_command(const Request& request) {
  OptionParser parser("blame", kBlameUsage, request);
  parser.add_common();
  parser.add({{"policy", option_value<std::string>(""), "POLICY: of the scenario"}});
  if (!parser.parse()) {
    return {};
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  const BatchingPolicy& policy = find_policy(scenario, parser.text("policy"));
  Progress progress("predicting the step with one thing changed");
  const Blame result =
      blame(scenario, policy, scenario_profile(scenario), kMaxBlamedRanks, progress.callback());
  progress.done();
  Answer answer;
  answer.status = result.out_of_memory ? kAnswerIsNo : kDone;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) { return blame_text(scenario, result, screen); };
  answer.json = [=] { return blame_json(result); };
  answer.csv = [=] { return blame_csv(result); };
  return answer;
}

}  // namespace stepsim
