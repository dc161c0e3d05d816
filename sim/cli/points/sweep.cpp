#include "sim/study/sweep.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/cli/page.h"
#include "sim/cli/points/point_options.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/html/page.h"
#include "sim/report/sweep/sweep_columns.h"
#include "sim/report/sweep/sweep_report.h"
#include "sim/report/sweep/sweep_warnings.h"

namespace stepsim {

namespace {

constexpr double kPercent = 100;

struct SweepQuestion {
  std::vector<std::string> over;
  std::string policy;
  std::optional<int> global_batch;
  std::optional<double> epochs;
  std::optional<double> samples;
  std::optional<double> tokens;
  std::optional<double> gpu_hour;
  double efficiency = 80;
};

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
    "  stepsim sweep scenarios/two_nodes.toml --over cluster.placement=8,2x8,4x8 \\\n"
    "      --global-batch 256\n"
    "  stepsim sweep scenarios/bucket_valley.toml --over ddp.bucket_cap=1MiB..2GiB:x2 \\\n"
    "      --html page.html\n";

/// The points, and a timeline of each one when one key is swept.
std::string sweep_page(PageContent content,
                       Jobs& jobs,
                       const std::vector<SweepAxis>& axes,
                       const SweepReport& report) {
  const Scenario& scenario = jobs.base();
  content.result = sweep_json(axes, report);
  content.headline = sweep_headline(axes, report);
  content.warnings = sweep_warnings(axes, report);
  content.sweep_columns = page_columns<SweepRow>(sweep_columns(), report.rows);
  if (axes.size() == 1) {
    add_sweep(jobs, axes.front(), report, content);
  }
  return page_text(page_data(scenario, *jobs.profile(scenario), std::move(content)));
}

/// Samples of an epoch, whatever the values of the axes are.
double samples_of_epoch(const Request& request,
                        const Jobs& jobs,
                        const std::vector<SweepAxis>& axes,
                        const std::string& policy) {
  const auto count = [&](const Scenario& scenario) {
    return std::ssize(data_lengths(scenario, find_policy(scenario, policy)));
  };
  const auto samples = count(jobs.base());
  for (const SweepAxis& axis : axes) {
    if (axis.key != "data.samples" && axis.key.find("lengths") == std::string::npos) {
      continue;
    }
    for (const Setting& value : axis.values) {
      std::ptrdiff_t others = samples;
      try {
        others = count(jobs.scenario({value}));
      } catch (const InputError&) {
        continue;  // The sweep says why.
      }
      if (others != samples) {
        request.fail(
            fmt::format("--epochs needs one data set for all values, but {} has {} samples and the "
                        "scenario {}; give --samples or --tokens",
                        value.text(),
                        others,
                        samples));
      }
    }
  }
  return static_cast<double>(samples);
}

/// The options that say what training costs.
TrainingGoal training_goal(const Request& request,
                           const SweepQuestion& options,
                           const Jobs& jobs,
                           const std::vector<SweepAxis>& axes,
                           const std::string& policy) {
  const int ways = (options.epochs ? 1 : 0) + (options.samples ? 1 : 0) + (options.tokens ? 1 : 0);
  if (ways > 1) {
    request.fail("give one of --epochs, --samples and --tokens");
  }
  if (options.gpu_hour && ways == 0) {
    request.fail("--gpu-hour goes with --epochs, --samples or --tokens");
  }
  TrainingGoal goal;
  goal.samples = options.samples;
  if (options.epochs) {
    goal.samples = *options.epochs * samples_of_epoch(request, jobs, axes, policy);
  }
  goal.tokens = options.tokens;
  goal.price = options.gpu_hour;
  goal.efficiency = options.efficiency / kPercent;
  return goal;
}

/// The scenario that is swept, and why there is none without the axes' values; else empty.
struct SweptScenario {
  Scenario scenario;
  std::string no_reference;
};

/// Reads the scenario. What --set says may hold only beside a value of --over: then the first point
/// that can be read stands for the scenario.
SweptScenario read_swept(const AskedScenario& asked, const std::vector<SweepAxis>& axes) {
  std::string why;
  try {
    return {asked.read(), ""};
  } catch (const InputError& error) {
    why = error.what();
  }
  constexpr std::size_t kMostTried = 1000;
  std::size_t points = 1;
  for (const SweepAxis& axis : axes) {
    points *= axis.values.size();
  }
  for (std::size_t i = 0; i < std::min(points, kMostTried); ++i) {
    AskedScenario one = asked;
    std::size_t left = i;
    for (const SweepAxis& axis : axes) {
      one.set.push_back(axis.values[left % axis.values.size()].text());
      left /= axis.values.size();
    }
    try {
      return {one.read(), why};
    } catch (const InputError&) {
      continue;
    }
  }
  return {asked.read(), ""};  // Raises what is wrong with it.
}

/// The other policies of the scenario that fit into memory as it stands, none where it cannot be
/// predicted so.
std::vector<std::string> fitting_policies(Jobs& jobs, const std::string& swept) {
  const Scenario& scenario = jobs.base();
  std::vector<std::string> fitting;
  for (const BatchingPolicy& policy : scenario.policies) {
    try {
      if (policy.name() != swept && fits_into_memory(scenario, policy, *jobs.profile(scenario))) {
        fitting.push_back(policy.name());
      }
    } catch (const InputError&) {
      continue;
    }
  }
  return fitting;
}

/// Keeps the samples of a step for the policy that is swept.
void keep_global_batch(const Request& request,
                       const std::vector<SweepAxis>& axes,
                       const SweepQuestion& question,
                       AskedScenario& asked) {
  if (!question.global_batch) {
    return;
  }
  const std::string policy = studied_policy(
      read_swept(asked, axes).scenario, "--over", mapped(axes, &SweepAxis::key), question.policy);
  const std::string prefix = "policy." + policy + ".";
  for (const SweepAxis& axis : axes) {
    if (axis.key == prefix + "batch_size") {
      request.fail("--global-batch says what each rank's batch holds, and so does --over " +
                   axis.key);
    }
  }
  asked.set.push_back(fmt::format("{}global_batch={}", prefix, *question.global_batch));
}

Answer ask_sweep(const Request& request, const SweepQuestion& question) {
  AskedScenario asked = asked_scenario(request);
  const std::vector<SweepAxis> axes = asked_axes(request, question.over);
  if (axes.empty()) {
    request.fail("give --over KEY=VALUES");
  }
  keep_global_batch(request, axes, question, asked);
  SweptScenario swept = read_swept(asked, axes);
  const auto jobs = std::make_shared<Jobs>(std::move(swept.scenario), "--over");
  const Scenario& scenario = jobs->base();
  keep_axis_files(request, scenario, axes);
  (void)jobs->profile(scenario);  // What is wrong with it comes before any work.
  SweepOptions options;
  options.policy =
      studied_policy(scenario, "--over", mapped(axes, &SweepAxis::key), question.policy);
  options.noise_runs = PredictOptions().noise_runs;
  options.skips_unpriced = true;
  options.no_reference = swept.no_reference;
  const TrainingGoal goal = training_goal(request, question, *jobs, axes, options.policy);
  PointRunner runner = point_runner(request, scenario);
  Progress progress("sweeping");
  options.on_progress = progress.callback();
  if (!runner.shard().is_all()) {
    const std::size_t kept = keep_sweep(*jobs, axes, options, runner);
    progress.done();
    return shard_answer(runner, kept);
  }
  SweepReport report = sweep_report(*jobs, axes, options, runner, goal);
  if (!any_fits(report)) {
    report.fitting_policies = fitting_policies(*jobs, options.policy);
  }
  progress.done();
  Answer answer;
  answer.status = any_fits(report) ? kDone : kAnswerIsNo;
  answer.text = [=](const Screen& screen) {
    return sweep_text(jobs->base(), axes, report, screen);
  };
  answer.json = [=] { return sweep_json(axes, report); };
  answer.csv = [=] { return sweep_csv(axes, report); };
  answer.html = [=, content = page_content(request, scenario)] {
    return sweep_page(content, *jobs, axes, report);
  };
  return answer;
}

}  // namespace

Question sweep_question() {
  using Q = SweepQuestion;
  const std::vector<OptionRow> own = {
      option("over", &Q::over, "KEY=VALUES: what to vary; may repeat"),
      option("policy",
             &Q::policy,
             "POLICY: of the scenario; else the one whose keys are swept, or the first"),
      option("global-batch",
             &Q::global_batch,
             "NUMBER: samples of a step, whatever the ranks and micro-batches")
          .from(1),
      option("epochs", &Q::epochs, "NUMBER: to train for; says hours and GPU-hours").above(0),
      option("samples", &Q::samples, "NUMBER: to train on, instead").above(0),
      option("tokens", &Q::tokens, "NUMBER: useful tokens to train on, instead").above(0),
      option("gpu-hour", &Q::gpu_hour, "PRICE: of a rank for an hour; says what it costs").above(0),
      option("efficiency",
             &Q::efficiency,
             "PERCENT: samples/s a rank, of the best, that a cluster is worth")
          .above(0)
          .up_to(kPercent)};
  Question row = question("sweep",
                          "step time over bucket caps, budgets, ranks or any key",
                          kSweepUsage,
                          option_table({scenario_options(), page_options(), own, point_options()}),
                          ask_sweep);
  row.points = SharedPoints::ProcessesAndShards;
  return row;
}

}  // namespace stepsim
