#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/progress.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/cli/page.h"
#include "sim/cli/points/point_options.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/csv.h"
#include "sim/report/html/page.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/shape_report.h"
#include "sim/report/text.h"
#include "sim/study/comparison.h"
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

}  // namespace

Answer compare_command(const Request& request) {
  OptionParser parser("compare", kCompareUsage, request);
  parser.add_common();
  parser.add_html();
  add_point_options(parser);
  if (!parser.parse()) {
    return {};
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  const Profile profile = scenario_profile(scenario);
  PointRunner runner = point_runner(parser, "compare", scenario);
  Progress progress(fmt::format("predicting {} policies", scenario.policies.size()));
  if (!runner.shard().is_all()) {
    const std::size_t kept = keep_compared(scenario, profile, runner, progress.callback());
    progress.done();
    return shard_answer(runner, kept, common.outputs);
  }
  // Points that are kept may be asked for another form of the answer.
  const KeptRows rows = parser.has("resume") ? KeptRows::Rows : parser.rows();
  std::vector<ComparedPolicy> compared =
      compare_policies(scenario, profile, rows, runner, progress.callback());
  progress.done();
  // The forms of the answer share the rows, which very many ranks and steps fill the memory with.
  const auto shared = std::make_shared<const std::vector<Prediction>>(
      mapped(compared, [](ComparedPolicy& one) { return std::move(one.prediction); }));
  const std::vector<Prediction>& predictions = *shared;
  const std::vector<double> planning_seconds = mapped(compared, &ComparedPolicy::planning_seconds);
  std::vector<ShapeCure> cures;  // [prediction], or empty where new shapes cost nothing.
  for (const ComparedPolicy& one : compared) {
    if (one.cure) {
      cures.push_back(*one.cure);
    }
  }
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
    return compare_text(scenario, *shared, planning_seconds, screen) + cures_text(*shared, cures);
  };
  answer.json = [=] {
    Json result = prediction_json(*shared, StepRows::Streamed);
    result.update(answers);
    return result;
  };
  answer.streamed = shared;
  answer.csv = [=] { return summary_csv(*shared); };
  answer.html = [=, content = page_content("compare", parser, scenario)] {
    return compare_page(common, content, scenario, profile, *shared, answers);
  };
  return answer;
}

}  // namespace stepsim
