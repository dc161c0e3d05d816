#include "sim/study/tune/tune.h"

#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/io/json_file.h"
#include "costmodel/records/plan_file.h"
#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/cli/page.h"
#include "sim/cli/points/point_options.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_cost.h"
#include "sim/report/html/page.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/training_plan_report.h"
#include "sim/report/tune/tune_report.h"
#include "sim/study/recommendation.h"
#include "sim/study/training/training_plan.h"

namespace stepsim {

namespace {

constexpr double kPercentOfAll = 100;

struct TuneQuestion {
  std::vector<std::string> over;
  std::optional<NumberRange> samples;
  std::optional<NumberRange> tokens;
  std::optional<double> max_order_change;
  bool keep_all_samples = false;
  double within = 1;
  int most_priced = 0;
  bool exhaustive = false;
  int verify = 0;
  std::string out_dir;
  std::optional<double> epochs;
  std::optional<double> gpu_hour;
};

constexpr const char* kTuneUsage =
    "usage: stepsim tune SCENARIO [--over KEY=VALUES]… [options]\n\n"
    "Searches batching policies, their sizes, bucket caps, accumulation, ZeRO and checkpointing "
    "for\n"
    "the most useful tokens per second, and says by how much any other setting could be "
    "faster\n"
    "at most. Few settings are predicted in full: the least time that each of the others takes "
    "rules it out.\n\n"
    "Without --over the space is made of the scenario's policies with half to twice their sizes,\n"
    "padding to multiples of 1, 8 and 64, and keys of [ddp] that leave the result of training as "
    "it\n"
    "is. With --over it is what you list, with values as in stepsim sweep;\n"
    "policy=a,b chooses policies. Unless you limit samples or tokens, a step holds as many "
    "samples\n"
    "as those of the scenario's policies, or a quarter less or more.\n\n"
    "examples:\n"
    "  stepsim tune scenarios/token_skew.toml\n"
    "  stepsim tune scenarios/busy_cluster.toml --max-order-change 10 --keep-all-samples\n"
    "  stepsim tune scenarios/token_skew.toml --over ddp.bucket_cap=1MiB..64MiB:x2 \\\n"
    "      --over policy.token_budget.max_tokens=768..2048:+64 --tokens 3000..6000\n"
    "  stepsim tune scenarios/token_skew.toml --verify 3 --out-dir tuned\n"
    "  stepsim tune scenarios/token_skew.toml --epochs 3 --gpu-hour 2.50\n"
    "  stepsim tune scenarios/token_skew.toml --html page.html\n";

/// Writes what a live run of settings needs: of each the scenario with the setting in it, its plan,
/// and its prediction.
class Verification {
 public:
  Verification(const Scenario& scenario, std::string folder)
      : scenario_(scenario), folder_(std::move(folder)) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) {
      throw EnvironmentFault("cannot make {}: {}", printable(folder_), error.message());
    }
  }

  /// `name`: of the files. The policy in them is called "NAME POLICY".
  void add(const std::string& name, const std::string& policy, std::vector<Setting> set) {
    set.emplace_back(fmt::format("policy.{}.name", policy), name + " " + policy);
    const std::string text = scenario_text(scenario_, set);
    const std::string path = fmt::format("{}/{}.toml", folder_, name);
    write_text_atomically(path, "# " + policy + ", as stepsim tune set it.\n" + text);
    const Scenario tuned = parse_scenario(text, path, {});
    const BatchingPolicy& of_name = find_policy(tuned, name + " " + policy);
    write_plan(fmt::format("{}/{}.plan.jsonl", folder_, name),
               plan_policy(tuned, of_name, planning_cost(tuned, of_name)).plan);
    const Prediction prediction = predict(tuned, of_name, scenario_profile(tuned), {});
    write_text_atomically(fmt::format("{}/{}.prediction.json", folder_, name),
                          prediction_json({prediction}, StepRows::All).dump(2) + "\n");
    rows_ += fmt::format("  {}/{}.toml  {:.3f} ms  {:.0f} useful tokens/s\n",
                         folder_,
                         name,
                         prediction.summary.step_time_ms.mean,
                         prediction.summary.useful_tokens_per_s());
    names_ += (names_.empty() ? "" : " ") + name;
  }

  [[nodiscard]] std::string text() const {
    const std::string folder = shell_word(folder_);
    return fmt::format(
        "\nfor live runs, predicted before them:\n{0}next:\n"
        "  python3 -m stepsim.torch.live {1}/*.plan.jsonl --repeats 30 --out-dir {1}/live\n"
        "  for i in {2}; do stepsim validate {1}/$i.toml --predictions {1}/$i.prediction.json "
        "--live {1}/live/$i.plan.jsonl; done\n",
        rows_,
        folder,
        names_);
  }

 private:
  const Scenario& scenario_;
  std::string folder_;
  std::string rows_;
  std::string names_;
};

/// What a page shows of a policy beside the search: its timeline, its steps, and where it is in the
/// picture of the front. Returns its prediction.
Prediction add_step(Jobs& jobs,
                    const std::string& policy,
                    const std::vector<Setting>& settings,
                    PageContent& content) {
  PredictOptions options;
  options.training_effects = true;
  Prediction prediction = predict(jobs.job(policy, settings), options);
  add_timeline(jobs, settings, prediction, content);
  return prediction;
}

/// The search, and a step of its best setting beside one of the best policy as it stands.
std::string tune_page(PageContent content,
                      Jobs& jobs,
                      const TuneSpace& space,
                      const TuneResult& result) {
  const Scenario& scenario = jobs.base();
  content.result = tune_page_json(scenario, space, result);
  content.headline = tune_headline(space, result);
  std::vector<Prediction> shown;
  const auto add_series = [&](Prediction prediction) {
    content.series.push_back(series_json(prediction, scenario.warmup_steps));
    shown.push_back(std::move(prediction));
  };
  if (const TuneReference* own = best_reference(result)) {
    add_series(add_step(jobs, own->policy, {}, content));
    content.result["own"] = tune_own_json(shown.back(), scenario.warmup_steps);
  }
  if (!result.finalists.empty()) {
    const TuneChoice& best = result.finalists.front().choice;
    const std::string& policy = space.policies()[best.policy].name;
    content.recommended = "tuned " + policy;
    const std::vector<Setting> settings = space.settings(best);
    Prediction prediction = add_step(jobs, policy, settings, content);
    prediction.policy = content.recommended;
    content.timelines.back()["policy"] = content.recommended;
    add_series(std::move(prediction));
    add_blame(jobs.job(policy, settings), content);
    content.blame.back()["policy"] = content.recommended;
  }
  content.warnings = note_texts(shown);
  return page_text(page_data(scenario, *jobs.profile(scenario), std::move(content)));
}

/// The first finalists, and the best policy as the scenario has it.
std::string write_verification(Verification files,
                               const TuneSpace& space,
                               const TuneResult& result,
                               std::size_t count) {
  for (std::size_t i = 0; i < std::min(count, result.finalists.size()); ++i) {
    const TuneChoice& choice = result.finalists[i].choice;
    files.add(std::to_string(i + 1), space.policies()[choice.policy].name, space.settings(choice));
  }
  if (const TuneReference* own = best_reference(result)) {
    files.add("own", own->policy, {});
  }
  return files.text();
}

/// All files that --verify can make; none without it.
std::vector<std::string> verification_files(const TuneQuestion& question) {
  if (question.verify == 0) {
    return {};
  }
  std::vector<std::string> names = {"own"};
  for (std::size_t i = 1; i <= std::min(at(question.verify), kMostFinalists); ++i) {
    names.push_back(std::to_string(i));
  }
  std::vector<std::string> files;
  for (const std::string& name : names) {
    for (const char* const ending : {".toml", ".plan.jsonl", ".prediction.json"}) {
      files.push_back(question.out_dir + "/" + name + ending);
    }
  }
  return files;
}

TuneOptions tune_options(const Request& request, const TuneQuestion& question) {
  if (!request.points.shard.empty()) {
    request.fail(
        "--shard: a search depends on its own results, so its points cannot be computed "
        "apart; use mpirun, or --resume");
  }
  if ((question.verify > 0) == question.out_dir.empty()) {
    request.fail("--verify NUMBER goes with --out-dir FOLDER");
  }
  TuneOptions options;
  options.limits.samples = question.samples;
  options.limits.tokens = question.tokens;
  if (question.max_order_change) {
    options.limits.displacement = *question.max_order_change / kPercentOfAll;
  }
  options.limits.keeps_samples = question.keep_all_samples;
  options.within = question.within / kPercentOfAll;
  options.most_priced = at(question.most_priced);
  options.exhaustive = question.exhaustive;
  options.threads = request.points.threads;
  return options;
}

/// What a training loop must do for the batches of the answer's setting.
std::vector<std::string> needs_of_answer(Jobs& jobs,
                                         const TuneSpace& space,
                                         const TuneResult& result) {
  if (result.finalists.empty()) {
    return {};
  }
  const TuneReference* own = best_reference(result);
  const bool keeps = own != nullptr && !is_better(result);
  const TuneChoice& best = result.finalists.front().choice;
  const Job job = keeps ? jobs.job(own->policy, {})
                        : jobs.job(space.policies()[best.policy].name, space.settings(best));
  PredictOptions options;
  options.noise_runs = 0;
  options.rows = KeptRows::None;
  options.training_effects = true;
  return training_needs(job.scenario(), predict(job, options));
}

/// What training takes by the scenario's best policy as it stands, and by the best setting.
std::vector<TrainingPlan> plans_of_answer(Jobs& jobs,
                                          const TuneSpace& space,
                                          const TuneResult& result,
                                          const EpochGoal& goal) {
  std::vector<TrainingPlan> plans;
  const auto add = [&](const Job& job, const TunePrice& price, const std::string& name) {
    Prediction prediction;
    prediction.policy = job.policy().name();
    prediction.summary.step_time_ms.mean = price.step_ms;
    prediction.summary.useful_tokens_per_step = price.useful_tokens;
    plans.push_back(training_plans(job.scenario(), *job.profile(), {prediction}, goal).front());
    plans.back().policy = name;
  };
  if (const TuneReference* own = best_reference(result)) {
    add(jobs.job(own->policy, {}), own->price, own->policy + " as it is");
  }
  if (!result.finalists.empty()) {
    const TunedPoint& best = result.finalists.front();
    const std::string& policy = space.policies()[best.choice.policy].name;
    add(jobs.job(policy, space.settings(best.choice)), best.drawn, "setting 1");
  }
  return plans;
}

Answer ask_tune(const Request& request, const TuneQuestion& question) {
  const Scenario scenario = read_asked(request);
  TuneOptions options = tune_options(request, question);
  const std::vector<SweepAxis> axes = asked_axes(request, question.over);
  keep_axis_files(request, scenario, axes);
  keep_scenario_files(request, scenario, "out-dir", verification_files(question));
  const TuneSpace space(scenario, axes);
  PointRunner runner = point_runner(request, scenario);
  Progress progress(fmt::format("searching {} points", space.size()));
  options.on_progress = progress.callback();
  const auto jobs = std::make_shared<Jobs>(scenario, space.option());
  const auto result = std::make_shared<TuneResult>(tune(*jobs, space, options, runner));
  progress.done();
  std::string written;
  if (question.verify > 0 && !result->finalists.empty()) {
    written = write_verification(
        Verification(scenario, question.out_dir), space, *result, at(question.verify));
  }
  const EpochGoal goal{question.epochs, question.gpu_hour};
  Answer answer;
  answer.status = result->finalists.empty() ? kAnswerIsNo : kDone;
  answer.text = [=](const Screen& screen) {
    const auto needs = needs_of_answer(*jobs, space, *result);
    const auto plans = plans_of_answer(*jobs, space, *result, goal);
    return tune_text(
               scenario, space, *result, screen, needs, training_plans_text(plans, goal, screen)) +
           written;
  };
  answer.json = [=] {
    Json json = tune_json(scenario, space, *result);
    if (goal.is_given()) {
      json["training"] = training_plans_json(plans_of_answer(*jobs, space, *result, goal));
    }
    return json;
  };
  answer.csv = [=] { return tune_csv(space, *result); };
  answer.html = [=, content = page_content(request, scenario)] {
    return tune_page(content, *jobs, space, *result);
  };
  return answer;
}

}  // namespace

Question tune_question() {
  using Q = TuneQuestion;
  const std::vector<OptionRow> own = {
      option("over", &Q::over, "KEY=VALUES: what to search; may repeat"),
      option("samples", &Q::samples, "LOW..HIGH: samples of a step, over all ranks").from(0),
      option("tokens", &Q::tokens, "LOW..HIGH: useful tokens of a step, over all ranks").from(0),
      option("max-order-change",
             &Q::max_order_change,
             "PERCENT: of an epoch, mean distance from the sampler's order at most")
          .from(0)
          .up_to(kPercentOfAll),
      option("keep-all-samples",
             &Q::keep_all_samples,
             "only settings that lose no sample of an epoch and crop none"),
      option("within", &Q::within, "PERCENT: the search may miss at most")
          .from(0)
          .up_to(kPercentOfAll),
      option("most-priced", &Q::most_priced, "NUMBER: points to price at most; 0: no limit")
          .from(0),
      option("exhaustive", &Q::exhaustive, "price every point, as a grid search does"),
      option("epochs", &Q::epochs, "NUMBER: say what so many epochs take").above(0),
      option("gpu-hour", &Q::gpu_hour, "PRICE: of a rank for an hour; says what training costs")
          .above(0),
      option("verify", &Q::verify, "NUMBER: finalists to write scenarios, plans and predictions of")
          .from(0),
      option("out-dir", &Q::out_dir, "FOLDER: for those files")};
  Question row = question("tune",
                          "the best setting of a whole space, with a proof",
                          kTuneUsage,
                          option_table({scenario_options(), page_options(), own, point_options()}),
                          ask_tune);
  row.points = SharedPoints::Processes;
  return row;
}

}  // namespace stepsim
