#include "sim/study/sweep.h"

#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/terminal/progress.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/cli/page.h"
#include "sim/cli/points/point_options.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/html/page.h"
#include "sim/report/sweep_columns.h"
#include "sim/report/sweep_report.h"

namespace stepsim {

namespace {

constexpr const char* kSweepUsage =
    "usage: stepsim sweep SCENARIO --over KEY=VALUES [--over KEY=VALUES] [options]\n\n"
    "Predicts every value of one or more scenario keys, with 90 % intervals, and says whether the\n"
    "best one is worth a change: values that cannot be told apart are named as such. Each row\n"
    "says where its costs come from.\n\n"
    "VALUES: LOW..HIGH:x2 (times 2), LOW..HIGH:+8 (plus 8), or a list a,b,c; units as in the "
    "file.\n\n"
    "examples:\n"
    "  stepsim sweep scenarios/bucket_valley.toml --over ddp.bucket_cap=1MiB..2GiB:x2\n"
    "  stepsim sweep scenarios/token_skew.toml \\\n"
    "      --over policy.token_budget.max_tokens=512..2048:+256\n"
    "  stepsim sweep scenarios/two_nodes.toml --over cluster.placement=8,2x8,4x8,8+4 \\\n"
    "      --samples 1e9 --gpu-hour 2.5\n"
    "  stepsim sweep scenarios/bucket_valley.toml --over ddp.bucket_cap=1MiB..2GiB:x2 \\\n"
    "      --html page.html\n";

/// The points, and a timeline of each one when one key is swept.
std::string sweep_page(const CommonOptions& common,
                       PageContent content,
                       const Scenario& scenario,
                       const Profile& profile,
                       const std::vector<SweepAxis>& axes,
                       const SweepReport& report) {
  content.result = sweep_json(axes, report);
  content.headline = sweep_headline(axes, report);
  content.warnings = sweep_warnings(axes, report);
  content.sweep_columns = page_sweep_columns(sweeps_only_caps(axes));
  if (axes.size() == 1) {
    add_sweep(common, scenario, axes.front(), report, content);
  }
  return page_text(page_data(scenario, profile, std::move(content)));
}

/// The options that say what training costs.
TrainingGoal training_goal(const OptionParser& parser) {
  TrainingGoal goal;
  for (const auto& [name, value] : {std::pair("samples", &goal.samples),
                                    std::pair("tokens", &goal.tokens),
                                    std::pair("gpu-hour", &goal.price)}) {
    *value = parser.maybe<double>(name);
    if (*value && !(**value > 0 && std::isfinite(**value))) {
      parser.fail(fmt::format("--{}: more than 0", name));
    }
  }
  if (goal.samples && goal.tokens) {
    parser.fail("give --samples or --tokens, not both");
  }
  if (goal.price && !goal.samples && !goal.tokens) {
    parser.fail("--gpu-hour goes with --samples or --tokens");
  }
  constexpr double kPercent = 100;
  goal.efficiency = parser.get<double>("efficiency") / kPercent;
  if (!(goal.efficiency > 0 && goal.efficiency <= 1)) {
    parser.fail("--efficiency: more than 0 and at most 100");
  }
  return goal;
}

}  // namespace

Answer sweep_command(const Request& request) {
  OptionParser parser("sweep", kSweepUsage, request);
  parser.add_common();
  parser.add_html();
  parser.add(
      {{"over", option_value<std::vector<std::string>>(), "KEY=VALUES: what to vary; may repeat"},
       {"policy",
        option_value<std::string>(""),
        "POLICY: of the scenario; else the one whose keys are swept, or the first"},
       {"samples", option_value<double>(), "NUMBER: to train on; says hours and GPU-hours"},
       {"tokens", option_value<double>(), "NUMBER: useful tokens to train on, instead"},
       {"gpu-hour", option_value<double>(), "PRICE: of a rank for an hour; says what it costs"},
       {"efficiency",
        option_value<double>(80),
        "PERCENT: samples/s a rank, of the best, that a cluster is worth"}});
  add_point_options(parser);
  if (!parser.parse()) {
    return {};
  }
  const CommonOptions common = parser.common();
  if (!parser.has("over")) {
    parser.fail("give --over KEY=VALUES");
  }
  const std::vector<SweepAxis> axes = mapped(parser.list("over"), parse_sweep_axis);
  const Scenario scenario = load_scenario(common);
  const Profile profile = scenario_profile(scenario);
  SweepOptions options;
  options.policy =
      studied_policy(scenario, "--over", mapped(axes, &SweepAxis::key), parser.text("policy"));
  options.noise_runs = PredictOptions().noise_runs;
  const TrainingGoal goal = training_goal(parser);
  PointRunner runner = point_runner(parser, "sweep", scenario);
  Progress progress("sweeping");
  options.on_progress = progress.callback();
  if (!runner.shard().is_all()) {
    const std::size_t kept =
        keep_sweep(scenario, axes, sweep_reference(scenario, axes), options, runner);
    progress.done();
    return shard_answer(runner, kept, common.outputs);
  }
  const SweepReport report = sweep_report(scenario, axes, options, runner, goal);
  progress.done();
  Answer answer;
  answer.status = any_fits(report) ? kDone : kAnswerIsNo;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) { return sweep_text(scenario, axes, report, screen); };
  answer.json = [=] { return sweep_json(axes, report); };
  answer.csv = [=] { return sweep_csv(axes, report); };
  answer.html = [=, content = page_content("sweep", parser, scenario)] {
    return sweep_page(common, content, scenario, profile, axes, report);
  };
  return answer;
}

}  // namespace stepsim
