#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/terminal/progress.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/cli/page.h"
#include "sim/predict/predict.h"
#include "sim/predict/priced_run.h"
#include "sim/report/csv.h"
#include "sim/report/html/page.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/shape_report.h"
#include "sim/report/text.h"
#include "sim/study/recommendation.h"
#include "sim/study/shape_cure.h"

namespace stepsim {

namespace {

constexpr const char* kCompareUsage =
    "usage: stepsim compare SCENARIO [options]\n\n"
    "Predicts every policy of the scenario and ranks them by useful tokens per second.\n\n"
    "examples:\n"
    "  stepsim compare scenarios/token_skew.toml\n"
    "  stepsim compare scenarios/token_skew.toml --profile my_box.json --json prediction.json\n"
    "  stepsim compare scenarios/token_skew.toml --html page.html\n";

/// [prediction] What would save time on new shapes; empty where these cost nothing.
std::vector<ShapeCure> shape_cures(const Scenario& scenario,
                                   const Profile& profile,
                                   const std::vector<Prediction>& predictions) {
  std::vector<ShapeCure> cures;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    if (predictions[i].shapes) {
      cures.push_back(cheapest_cure(scenario, scenario.policies[i], profile, predictions[i]));
    }
  }
  return cures;
}

}  // namespace

Answer compare_command(const Request& request) {
  OptionParser parser("compare", kCompareUsage, request);
  parser.add_common();
  parser.add_html();
  if (!parser.parse()) {
    return {};
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  const Profile profile = scenario_profile(scenario);
  std::vector<double> planning_seconds;
  Progress progress(fmt::format("predicting {} policies", scenario.policies.size()));
  PredictOptions options;
  options.on_progress = progress.callback();
  options.training_effects = true;
  options.on_planned = [&](double seconds) { planning_seconds.push_back(seconds); };
  const std::vector<Prediction> predictions = predict_policies(scenario, profile, options);
  const std::vector<ShapeCure> cures = shape_cures(scenario, profile, predictions);
  progress.done();
  Json answers = {{"recommendation", recommendation_json(recommend(scenario, predictions))}};
  if (!cures.empty()) {
    answers["cures"] = cures_json(predictions, cures);
  }
  const bool all_fit = std::ranges::all_of(
      predictions, [](const Prediction& prediction) { return !prediction.out_of_memory; });
  Answer answer;
  answer.status = all_fit ? kDone : kAnswerIsNo;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) {
    return compare_text(scenario, predictions, planning_seconds, screen) +
           cures_text(predictions, cures);
  };
  answer.json = [=] {
    Json result = prediction_json(predictions, true);
    result.update(answers);
    return result;
  };
  answer.csv = [=] { return summary_csv(predictions); };
  answer.html = [=, content = page_content("compare", parser, scenario)] {
    return compare_page(common, content, scenario, profile, predictions, answers);
  };
  return answer;
}

}  // namespace stepsim
