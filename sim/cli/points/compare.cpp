#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/cli/page.h"
#include "sim/cli/points/point_options.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/csv.h"
#include "sim/report/html/page.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/shape_report.h"
#include "sim/report/text.h"
#include "sim/report/training_plan_report.h"
#include "sim/study/comparison.h"
#include "sim/study/recommendation.h"
#include "sim/study/training/training_plan.h"

namespace stepsim {

namespace {

struct CompareOptions {
  std::optional<double> epochs;
  std::optional<double> gpu_hour;
};

constexpr const char* kCompareUsage =
    "usage: stepsim compare SCENARIO [options]\n\n"
    "Predicts every policy of the scenario and ranks them by useful tokens per second. Policies\n"
    "that do not fit into memory come last, marked with !; exit status 1: none to choose fits.\n\n"
    "examples:\n"
    "  stepsim compare scenarios/token_skew.toml\n"
    "  stepsim compare scenarios/token_skew.toml --profile my_box.json --json prediction.json\n"
    "  stepsim compare scenarios/token_skew.toml --html page.html\n";

Answer answer_of(std::vector<ComparedPolicy> compared,
                 const Request& request,
                 const EpochGoal& goal,
                 const std::shared_ptr<Jobs>& jobs) {
  const Scenario& scenario = jobs->base();
  // The forms of the answer share the rows, which very many ranks and steps fill the memory with.
  const auto shared = std::make_shared<const std::vector<Prediction>>(
      mapped(compared, [](ComparedPolicy& one) { return std::move(one.prediction); }));
  const std::vector<Prediction>& predictions = *shared;
  const std::string planning =
      planning_text(predictions, mapped(compared, &ComparedPolicy::planning_seconds));
  std::vector<ShapeCure> cures;  // [prediction], or empty where new shapes cost nothing.
  for (const ComparedPolicy& one : compared) {
    if (one.cure) {
      cures.push_back(*one.cure);
    }
  }
  const Recommendation recommendation = recommend(scenario, predictions);
  Json answers = {{"recommendation", recommendation_json(recommendation)}};
  if (!cures.empty()) {
    answers["cures"] = cures_json(predictions, cures);
  }
  const std::vector<TrainingPlan> plans =
      training_plans(scenario, *jobs->profile(scenario), predictions, goal);
  if (goal.is_given()) {
    answers["training"] = training_plans_json(plans);
  }
  const bool any_fits = std::ranges::any_of(
      predictions, [](const Prediction& prediction) { return !prediction.out_of_memory; });
  const bool any_choice = recommendation.only_references || !recommendation.choices.empty();
  Answer answer;
  answer.status = any_fits && any_choice ? kDone : kAnswerIsNo;
  answer.aside = planning;
  answer.text = [=](const Screen& screen) {
    return compare_text(jobs->base(), *shared, screen, training_plans_text(plans, goal, screen)) +
           cures_text(*shared, cures);
  };
  answer.json = [=] {
    Json result = prediction_json(*shared, StepRows::Streamed);
    result.update(answers);
    return result;
  };
  answer.streamed = [=](const Json& json, const TextSink& sink) {
    write_streamed(json, *shared, sink);
  };
  answer.csv = [=] { return summary_csv(*shared); };
  answer.html = [=, content = page_content(request, scenario)] {
    return compare_page(content, *jobs, *shared, answers);
  };
  return answer;
}

Answer ask_compare(const Request& request, const CompareOptions& options) {
  const auto jobs = std::make_shared<Jobs>(read_asked(request));
  const Scenario& scenario = jobs->base();
  (void)jobs->profile(scenario);  // What is wrong with it comes before any work.
  PointRunner runner = point_runner(request, scenario);
  Progress progress(fmt::format("predicting {} policies", scenario.policies.size()));
  if (!runner.shard().is_all()) {
    const std::size_t kept = keep_compared(*jobs, runner, progress.callback());
    progress.done();
    return shard_answer(runner, kept);
  }
  // Points that are kept may be asked for another form of the answer.
  const KeptRows rows = request.points.resume.empty() ? request.rows() : KeptRows::Rows;
  std::vector<ComparedPolicy> compared = compare_policies(*jobs, rows, runner, progress.callback());
  progress.done();
  return answer_of(std::move(compared), request, EpochGoal{options.epochs, options.gpu_hour}, jobs);
}

}  // namespace

Question compare_question() {
  Question row = question(
      "compare",
      "all policies of a scenario side by side",
      kCompareUsage,
      option_table(
          {scenario_options(),
           page_options(),
           point_options(),
           {option("epochs", &CompareOptions::epochs, "NUMBER: say what so many epochs take")
                .above(0),
            option("gpu-hour",
                   &CompareOptions::gpu_hour,
                   "PRICE: of a rank for an hour; says what training costs")
                .above(0)}}),
      ask_compare);
  row.points = SharedPoints::ProcessesAndShards;
  return row;
}

}  // namespace stepsim
