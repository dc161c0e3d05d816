#include <utility>

#include <fmt/core.h>

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
void write_page(const CommonOptions& options,
                PageContent content,
                const Scenario& scenario,
                const BatchingPolicy& policy,
                const Profile& profile,
                const Prediction& prediction) {
  content.result = page_result({prediction});
  content.warnings = note_texts(prediction);
  content.series.push_back(series_json(prediction, scenario.warmup_steps));
  add_bucket_cap_sweep(options, scenario, profile, prediction, content);
  add_blame(scenario, policy, profile, content);
  write_text_atomically(options.html, page_text(page_data(scenario, profile, std::move(content))));
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) {
  OptionParser parser("run", kRunUsage);
  parser.add_common();
  parser.add_html();
  parser.add({{"policy", option_value<std::string>(""), "POLICY: of the scenario"},
              {"trace", option_text(), "FILE: also write a Chrome trace, as stepsim trace --out"}});
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  const BatchingPolicy& policy = find_policy(scenario, parser.text("policy"));
  const Profile profile = scenario_profile(scenario);
  Progress progress("predicting " + policy.name());
  PredictOptions options;
  options.on_progress = progress.callback();
  const Prediction prediction = predict(scenario, policy, profile, options);
  progress.done();
  write_result(
      common,
      run_text(scenario, prediction, output_screen()),
      [&] { return prediction_json({prediction}, true); },
      [&] { return steps_csv({prediction}); });
  if (!common.html.empty()) {
    write_page(common,
               page_content("run", arguments, parser, scenario),
               scenario,
               policy,
               profile,
               prediction);
  }
  if (parser.has("trace")) {
    const std::string path = parser.text("trace");
    (void)write_chrome_trace(scenario, policy, profile, {}, path);
  }
  return prediction.out_of_memory ? kAnswerIsNo : kDone;
}

}  // namespace stepsim
