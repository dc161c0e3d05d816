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
#include "sim/report/text.h"
#include "sim/study/recommendation.h"

namespace stepsim {

namespace {

constexpr const char* kCompareUsage =
    "usage: stepsim compare SCENARIO [options]\n\n"
    "Predicts every policy of the scenario and ranks them by useful tokens per second.\n\n"
    "examples:\n"
    "  stepsim compare scenarios/token_skew.toml\n"
    "  stepsim compare scenarios/token_skew.toml --profile my_box.json --json prediction.json\n"
    "  stepsim compare scenarios/token_skew.toml --html page.html\n";

/// Each policy's timeline, that of the recommended one at other bucket caps, and what it could
/// save.
void write_page(const CommonOptions& options,
                PageContent content,
                const Scenario& scenario,
                const Profile& profile,
                const std::vector<Prediction>& predictions) {
  content.result = page_result(predictions);
  content.result["recommendation"] = recommendation_json(recommend(scenario, predictions));
  content.headline = recommendation_text(scenario, predictions);
  content.warnings = note_texts(predictions);
  const Prediction* best = recommended(scenario, predictions);
  content.recommended = best != nullptr ? best->policy : "";
  for (const Prediction& prediction : predictions) {
    content.series.push_back(series_json(prediction, scenario.warmup_steps));
    if (&prediction == best) {
      add_bucket_cap_sweep(options, scenario, profile, prediction, content);
      add_blame(scenario, find_policy(scenario, prediction.policy), profile, content);
    } else {
      add_timeline(options, scenario, prediction, content);
    }
  }
  write_text_atomically(options.html, page_text(page_data(scenario, profile, std::move(content))));
}

}  // namespace

int compare_command(const std::vector<std::string>& arguments) {
  OptionParser parser("compare", kCompareUsage);
  parser.add_common();
  parser.add_html();
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  const Profile profile = scenario_profile(scenario);
  std::vector<Prediction> predictions;
  std::vector<double> planning_seconds;
  const auto count = static_cast<double>(scenario.policies.size());
  Progress progress(fmt::format("predicting {} policies", count));
  for (const BatchingPolicy& policy : scenario.policies) {
    const auto before = static_cast<double>(predictions.size());
    PredictOptions options;
    options.on_progress = [&](double share) { progress.at((before + share) / count); };
    options.training_effects = true;
    options.on_planned = [&](double seconds) { planning_seconds.push_back(seconds); };
    predictions.push_back(predict(scenario, policy, profile, options));
  }
  progress.done();
  const auto json = [&] {
    Json result = prediction_json(predictions, true);
    result["recommendation"] = recommendation_json(recommend(scenario, predictions));
    return result;
  };
  write_result(
      common, compare_text(scenario, predictions, planning_seconds, output_screen()), json, [&] {
        return summary_csv(predictions);
      });
  if (!common.html.empty()) {
    write_page(common,
               page_content("compare", arguments, parser, scenario),
               scenario,
               profile,
               predictions);
  }
  const bool all_fit = std::ranges::all_of(
      predictions, [](const Prediction& prediction) { return !prediction.out_of_memory; });
  return all_fit ? kDone : kAnswerIsNo;
}

}  // namespace stepsim
