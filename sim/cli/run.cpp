#include "sim/predict/scenario_profile.h"

#include <memory>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "costmodel/terminal/progress.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/cli/page.h"
#include "sim/predict/predict.h"
#include "sim/report/csv.h"
#include "sim/report/html/page.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/text.h"
#include "sim/report/trace/traces.h"

namespace stepsim {

namespace {

constexpr const char* kRunUsage =
    "usage: stepsim run SCENARIO [--policy NAME] [--trace FILE] [options]\n\n"
    "Predicts the step time of one policy (the first, without --policy).\n\n"
    "examples:\n"
    "  stepsim run scenarios/token_skew.toml --policy bucketing\n"
    "  stepsim run scenarios/bucket_valley.toml --set ddp.bucket_cap=\"100 MiB\" --json -\n"
    "  stepsim run scenarios/bucket_valley.toml --html page.html\n";

/// Its timeline at other bucket caps, its steps, and what would save most.
std::string run_page(const CommonOptions& options,
                     PageContent content,
                     const Scenario& scenario,
                     const Profile& profile,
                     const std::vector<Prediction>& predictions) {
  const Prediction& prediction = predictions.front();
  content.result = page_result(predictions);
  content.warnings = note_texts(prediction);
  content.series.push_back(series_json(prediction, scenario.warmup_steps));
  add_bucket_cap_sweep(options, scenario, profile, prediction, content);
  add_blame(scenario, find_policy(scenario, prediction.policy), profile, content);
  return page_text(page_data(scenario, profile, std::move(content)));
}

}  // namespace

Answer run_command(const Request& request) {
  OptionParser parser("run", kRunUsage, request);
  parser.add_common();
  parser.add_html();
  parser.add({{"policy", option_value<std::string>(""), "POLICY: of the scenario"},
              {"trace", option_text(), "FILE: also write a Chrome trace, as stepsim trace --out"}});
  if (!parser.parse()) {
    return {};
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  const BatchingPolicy& policy = find_policy(scenario, parser.text("policy"));
  const Profile profile = scenario_profile(scenario);
  Progress progress("predicting " + policy.name());
  PredictOptions options;
  options.on_progress = progress.callback();
  options.rows = parser.rows();
  // The forms of the answer share the rows, which very many ranks and steps fill the memory with.
  const auto predictions = std::make_shared<std::vector<Prediction>>();
  predictions->push_back(predict(scenario, policy, profile, options));
  progress.done();
  if (parser.has("trace")) {
    const std::string path = parser.text("trace");
    (void)write_chrome_trace(scenario, policy, profile, {}, path);
  }
  Answer answer;
  answer.status = predictions->front().out_of_memory ? kAnswerIsNo : kDone;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) {
    return run_text(scenario, predictions->front(), screen);
  };
  answer.json = [=] { return prediction_json(*predictions, StepRows::Streamed); };
  answer.streamed = predictions;
  answer.csv = [=] { return steps_csv(*predictions); };
  answer.html = [=, content = page_content("run", parser, scenario)] {
    return run_page(common, content, scenario, profile, *predictions);
  };
  return answer;
}

}  // namespace stepsim
