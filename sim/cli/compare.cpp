#include <algorithm>

#include "sim/batch_plan.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/predict.h"
#include "sim/report/csv.h"
#include "sim/report/json.h"
#include "sim/report/text.h"
#include "sim/run.h"

namespace stepsim {

namespace {

constexpr const char* kUsage =
    "usage: stepsim compare SCENARIO [options]\n\n"
    "Predicts every policy of the scenario and ranks them by useful tokens per second.\n\n"
    "examples:\n"
    "  stepsim compare scenarios/token_skew.toml\n"
    "  stepsim compare scenarios/token_skew.toml --profile my_box.json --json prediction.json\n";

}  // namespace

int compare_command(const std::vector<std::string>& arguments) {
  OptionParser parser("compare", kUsage);
  parser.add_common();
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  const Profile profile = scenario_profile(scenario);
  std::vector<Prediction> predictions;
  for (const PolicySpec& policy : scenario.policies) {
    predictions.push_back(predict(scenario, policy, profile, {}));
    const EpochEffects effects = plan_effects(scenario, policy);
    predictions.back().training = effects.training;
    predictions.back().varlen = effects.varlen;
    predictions.back().planning_seconds = effects.planning_seconds;
  }
  print_text(common, compare_text(scenario, predictions));
  if (!common.json.empty()) {
    write_text_atomically(common.json, prediction_json(predictions, true).dump(1) + "\n");
  }
  if (!common.csv.empty()) {
    write_text_atomically(common.csv, summary_csv(predictions));
  }
  const bool all_fit =
      std::all_of(predictions.begin(), predictions.end(), [](const Prediction& prediction) {
        return prediction.out_of_memory.empty();
      });
  return all_fit ? kDone : kAnswerIsNo;
}

}  // namespace stepsim
