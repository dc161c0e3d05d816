#include "sim/study/blame.h"

#include <nlohmann/json.hpp>

#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/blame_report.h"

namespace stepsim {

namespace {

struct BlameOptions {
  std::string policy;
};

constexpr const char* kBlameUsage =
    "usage: stepsim blame SCENARIO [--policy NAME] [options]\n\n"
    "What the step time is spent on: runs the scenario again with one thing changed (free\n"
    "communication, balanced loads, equal ranks, one bucket, …) and says what each would save.\n\n"
    "examples:\n"
    "  stepsim blame scenarios/token_skew.toml --policy variable_fixed\n"
    "  stepsim blame scenarios/bucket_valley.toml --json -\n";

Answer ask_blame(const Request& request, const BlameOptions& options) {
  const Scenario scenario = read_asked(request);
  const BatchingPolicy& policy = find_policy(scenario, options.policy);
  Progress progress("predicting the step with one thing changed");
  const Blame result = blame(
      Job(scenario, policy, scenario_profile(scenario)), kMaxBlamedRanks, progress.callback());
  progress.done();
  Answer answer;
  answer.status = result.out_of_memory ? kAnswerIsNo : kDone;
  answer.text = [=](const Screen& screen) { return blame_text(scenario, result, screen); };
  answer.json = [=] { return blame_json(result); };
  answer.csv = [=] { return blame_csv(result); };
  return answer;
}

}  // namespace

Question blame_question() {
  return question(
      "blame",
      "what the step is spent on, and what would save most",
      kBlameUsage,
      option_table({scenario_options(),
                    {option("policy", &BlameOptions::policy, "POLICY: of the scenario")}}),
      ask_blame);
}

}  // namespace stepsim
