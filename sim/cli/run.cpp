#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/cli/page.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/csv.h"
#include "sim/report/html/page.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/text.h"
#include "sim/report/trace/traces.h"
#include "sim/report/training_plan_report.h"
#include "sim/study/recommendation.h"
#include "sim/study/training/memory_parts.h"
#include "sim/study/training/training_plan.h"

namespace stepsim {

namespace {

struct RunOptions {
  std::string policy;
  std::string trace;
  std::optional<double> epochs;
  std::optional<double> gpu_hour;
};

constexpr const char* kRunUsage =
    "usage: stepsim run SCENARIO [--policy NAME] [--trace FILE] [options]\n\n"
    "Predicts the step time of one policy (the first, without --policy).\n\n"
    "examples:\n"
    "  stepsim run scenarios/token_skew.toml --policy bucketing\n"
    "  stepsim run scenarios/shard_8b.toml --epochs 3 --gpu-hour 2.50\n"
    "  stepsim run scenarios/bucket_valley.toml --set ddp.bucket_cap=\"100 MiB\" --json -\n"
    "  stepsim run scenarios/bucket_valley.toml --html page.html\n";

/// Its timeline at other bucket caps, its steps, and what would save most. `also`: what its result
/// has beside the prediction.
std::string run_page(PageContent content,
                     Jobs& jobs,
                     const std::vector<Prediction>& predictions,
                     const Json& also) {
  const Scenario& scenario = jobs.base();
  const Prediction& prediction = predictions.front();
  content.result = page_result(predictions);
  content.result.update(also);
  content.warnings = note_texts(prediction);
  content.series.push_back(series_json(prediction, scenario.warmup_steps));
  add_bucket_cap_sweep(jobs, prediction, content);
  add_blame(jobs.job(prediction.policy, {}), content);
  return page_text(page_data(scenario, *jobs.profile(scenario), std::move(content)));
}

Answer ask_run(const Request& request, const RunOptions& options) {
  const Scenario scenario = read_asked(request);
  const BatchingPolicy& policy = find_policy(scenario, options.policy);
  const auto jobs = std::make_shared<Jobs>(scenario);
  const Job job = jobs->job(policy.name(), {});
  Progress progress("predicting " + policy.name());
  PredictOptions predict_options;
  predict_options.on_progress = progress.callback();
  predict_options.rows = request.rows();
  predict_options.training_effects = true;
  predict_options.memory_curve = true;
  // The forms of the answer share the rows, which very many ranks and steps fill the memory with.
  const auto predictions = std::make_shared<std::vector<Prediction>>();
  predictions->push_back(predict(job, predict_options));
  progress.done();
  const std::vector<std::string> needs = training_needs(scenario, predictions->front());
  predictions->front().training.reset();  // compare's answer has it; this one is Job.predict()'s.
  if (!options.trace.empty()) {
    (void)write_chrome_trace(scenario, policy, *job.profile(), {}, options.trace);
  }
  Answer answer;
  answer.status = predictions->front().out_of_memory ? kAnswerIsNo : kDone;
  const EpochGoal goal{options.epochs, options.gpu_hour};
  const std::vector<TrainingPlan> plans =
      training_plans(scenario, *job.profile(), *predictions, goal);
  const MemoryParts memory = memory_parts(job, predictions->front());
  answer.text = [=](const Screen& screen) {
    return run_text(scenario,
                    predictions->front(),
                    screen,
                    needs,
                    training_plans_text(plans, goal, screen),
                    memory);
  };
  Json also = {{"memory_parts", memory_parts_json(memory)}};
  if (goal.is_given()) {
    also["training"] = training_plans_json(plans);
  }
  answer.json = [=] {
    Json result = prediction_json(*predictions, StepRows::Streamed);
    result.update(also);
    return result;
  };
  answer.streamed = [=](const Json& json, const TextSink& sink) {
    write_streamed(json, *predictions, sink);
  };
  answer.csv = [=] { return steps_csv(*predictions); };
  answer.html = [=, content = page_content(request, scenario)] {
    return run_page(content, *jobs, *predictions, also);
  };
  return answer;
}

}  // namespace

Question run_question() {
  return question(
      "run",
      "predict the step time of one policy",
      kRunUsage,
      option_table(
          {scenario_options(),
           page_options(),
           {option("policy", &RunOptions::policy, "POLICY: of the scenario"),
            option("epochs", &RunOptions::epochs, "NUMBER: say what so many epochs take").above(0),
            option("gpu-hour",
                   &RunOptions::gpu_hour,
                   "PRICE: of a rank for an hour; says what training costs")
                .above(0),
            option("trace",
                   &RunOptions::trace,
                   "FILE: also write a Chrome trace, as stepsim trace --out")
                .written()}}),
      ask_run);
}

}  // namespace stepsim
