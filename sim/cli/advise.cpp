#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/own_folders.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/records/record_files.h"
#include "costmodel/terminal/progress.h"
#include "sim/batching/lengths.h"
#include "sim/cli/cli.h"
#include "sim/cli/command_output.h"
#include "sim/cli/options.h"
#include "sim/cli/page.h"
#include "sim/predict/metrics.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/advice_report.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/study/bucket_cap_sweep.h"
#include "sim/study/live_run.h"
#include "sim/study/recommendation.h"
#include "sim/study/starter/starter_scenario.h"

namespace stepsim {

namespace {

namespace fs = std::filesystem;

constexpr const char* kAdviseUsage =
    "usage: stepsim advise RECORD… [--out-dir FOLDER] [options]\n\n"
    "From the records of one training to an answer: what its steps are spent on, the batching\n"
    "policy and bucket size that suit it, what they change, and what an epoch takes. The records\n"
    "come from stepsim_recorder.py with Recorder(…, model=ddp, loader=loader), a few dozen steps;\n"
    "files of single ranks (run.rank0.jsonl …) are joined.\n\n"
    "FOLDER keeps the profile, a scenario to edit and the predictions. A scenario that you have\n"
    "edited is used as it stands.\n\n"
    "examples:\n"
    "  stepsim advise run.jsonl\n"
    "  stepsim advise run.rank*.jsonl --price-per-hour 24.50 --html advice.html\n";

/// What `stepcal import run-record` prints. Raises InputError with that when it refuses its input,
/// EnvironmentFault when it cannot run.
std::string import_output(const std::vector<std::string>& words) {
  CommandOutput output = command_output(words);
  if (output.status == kDone) {
    return output.text;
  }
  while (!output.text.empty() && output.text.back() == '\n') {
    output.text.pop_back();
  }
  if (output.status == kBadInput) {
    throw InputError("no profile of these records:\n{}", output.text);
  }
  throw EnvironmentFault("{} failed:\n{}", words[0], output.text);
}

/// Adds the values of an option that stepcal takes as well.
void pass_on(const OptionParser& parser, const std::string& name, std::vector<std::string>* words) {
  for (const std::string& value : parser.list(name)) {
    words->insert(words->end(), {"--" + name, value});
  }
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw EnvironmentFault("cannot make folder {}: {}", folder.string(), error.message());
  }
}

/// Writes the made scenario, and a second copy beside it that tells later whether the user has
/// edited the first. An edited one stays. Returns whether it does.
bool keeps_edited(const fs::path& scenario, const std::string& made) {
  fs::path copy = scenario;
  copy.replace_extension(".made.toml");
  const auto text_of = [](const fs::path& path) {
    std::error_code error;
    return fs::exists(path, error) ? read_text(path.string()) : std::string();
  };
  const std::string own = text_of(scenario);
  const bool edited = !own.empty() && own != made && own != text_of(copy);
  write_text_atomically(copy.string(), made);
  if (!edited) {
    write_text_atomically(scenario.string(), made);
  }
  return edited;
}

/// The scenario at another bucket cap.
Scenario with_cap(const CommonOptions& common, const Scenario& own, Bytes cap) {
  std::vector<std::string> set = common.set;
  if (cap.value() == kDefaultBucketCapBytes) {
    std::ranges::copy(default_cap_settings(own), std::back_inserter(set));
  } else {
    set.push_back(fmt::format("ddp.bucket_cap={} B", cap.value()));
  }
  return read_scenario(common.scenario, set);
}

CapAdvice cap_advice(const CommonOptions& common,
                     const Scenario& scenario,
                     const Profile& profile,
                     const std::string& policy) {
  CapAdvice advice;
  advice.own = advice.best = scenario.ddp.bucket_cap;
  SweepOptions options;
  options.policy = policy;
  double shortest = 0;
  for (const CapPoint& point : bucket_cap_sweep(scenario, profile, options)) {
    const double step =
        point.point.not_priced.empty() ? point.point.prediction.summary.step_time_ms.mean : 0;
    advice.caps.push_back({point.cap, step, point.point.not_priced});
    if (point.own) {
      advice.best = point.cap;
      shortest = step;
    }
  }
  for (const CapStep& cap : advice.caps) {
    if (cap.not_priced.empty() && cap.step_ms < shortest) {
      shortest = cap.step_ms;
      advice.best = cap.cap;
    }
  }
  if (advice.best != advice.own) {
    PredictOptions paired;
    paired.paired_draws = true;
    const auto predicted = [&](const Scenario& one) {
      return predict(one, find_policy(one, policy), profile, paired);
    };
    advice.gain =
        paired_gain(predicted(with_cap(common, scenario, advice.best)), predicted(scenario));
  }
  return advice;
}

/// What runs now, and what differs from it: the best bucket cap with the same batches, the best
/// policy, and that policy with its best bucket cap.
std::vector<AdviceOption> options_of(const CommonOptions& common,
                                     const Scenario& scenario,
                                     const Profile& profile,
                                     const Prediction& now,
                                     const Prediction& best,
                                     const CapAdvice& caps_of_best) {
  const Bytes own = scenario.ddp.bucket_cap;
  std::vector<AdviceOption> options = {{"now", own, now, {}}};
  const auto at_cap = [&](const Prediction& policy, Bytes cap) {
    const Scenario other = with_cap(common, scenario, cap);
    return predict(other, find_policy(other, policy.policy), profile, {});
  };
  const bool is_best = now.policy == best.policy;
  const CapAdvice caps = is_best ? caps_of_best : cap_advice(common, scenario, profile, now.policy);
  if (caps.best != own) {
    options.push_back({"other bucket cap", caps.best, at_cap(now, caps.best), caps.gain});
  }
  if (!is_best) {
    options.push_back({"other batches", own, best, unpaired_gain(best, now)});
    if (caps_of_best.best != own) {
      Prediction both = at_cap(best, caps_of_best.best);
      const Gain gain = unpaired_gain(both, now);
      options.push_back({"both", caps_of_best.best, std::move(both), gain});
    }
  }
  return options;
}

/// What to do with the answer, as commands that can be pasted. `records`: as this command was given
/// them. `can_plan`: the scenario knows the data set's samples by number.
std::string next_steps(const Scenario& scenario,
                       const Advice& advice,
                       const std::vector<std::string>& records,
                       const fs::path& folder,
                       bool can_plan) {
  const Prediction* best = recommended(scenario, advice.predictions);
  const std::string policy = best != nullptr ? best->policy : advice.predictions.front().policy;
  const std::string file = shell_word((folder / "scenario.toml").string());
  if (policy == advice.recorded) {
    return fmt::format(
        "next: stepsim compare {0}   (the table behind the answer)\n"
        "      stepsim blame {0} --policy {1}   (what a step would save if one thing were "
        "different)\n",
        file,
        shell_word(policy));
  }
  if (!can_plan) {
    return fmt::format(
        "next: stepsim compare {}   (the table behind the answer)\n"
        "to train with a policy's batches: write the tokens of each sample of the data set, one a "
        "line, to lengths.txt\nand say stepsim advise {} --lengths lengths.txt --out-dir {}\n",
        file,
        fmt::join(mapped(records, shell_word), " "),
        shell_word(folder.string() + "_planned"));
  }
  return fmt::format(
      "next: stepsim plan {0} --policy {1} --out {2}   (batches for your loader)\n"
      "      record some steps of it with Recorder(\"new\", policy={3}), then\n"
      "      stepsim validate {0} --live new.jsonl\n"
      "more: stepsim compare {0}   (the table behind the answer)\n",
      file,
      shell_word(policy),
      shell_word((folder / "plan.jsonl").string()),
      Json(policy).dump());
}

}  // namespace

Answer advise_command(const Request& request) {
  OptionParser parser("advise", kAdviseUsage, request);
  parser.add({{"records", option_value<std::vector<std::string>>(), "RECORD…: run records"},
              {"out-dir", option_value<std::string>("advice"), "FOLDER: for the files it makes"},
              {"lengths",
               option_text(),
               "FILE: tokens of each sample of the data set, one a line, in its order"},
              {"base", option_value<std::vector<std::string>>(), "PROFILE: with all-reduce times"},
              {"plan",
               option_value<std::vector<std::string>>(),
               "PLAN: what ran, for records without a model; may repeat"},
              {"price-per-hour", option_value<double>(), "NUMBER: of all ranks together"},
              {"json", option_text(), "FILE or -: write the result as JSON", true},
              {"quiet,q", option_flag(), "suppress terminal output"}});
  parser.add_html();
  parser.positional("records", -1);
  if (!parser.parse()) {
    return {};
  }
  const std::vector<std::string> paths = parser.list("records");
  if (paths.empty()) {
    parser.fail("no run record given");
  }
  const std::optional<double> price = parser.maybe<double>("price-per-hour");
  if (price && !(*price >= 0 && std::isfinite(*price))) {
    parser.fail("--price-per-hour must be a number, 0 or more");
  }
  CommonOptions common;
  common.outputs = parser.outputs();
  const fs::path folder = parser.text("out-dir");
  std::vector<std::string> warnings;
  const std::vector<RecordFile> records = read_record_files(paths, &warnings);
  const StarterScenario starter = starter_scenario(
      records, fs::path(paths.front()).stem().stem().string(), parser.has("lengths"));

  Advice advice;
  advice.samples = starter.samples;
  advice.mean_length = starter.mean_length;
  if (parser.has("lengths")) {
    LengthSource lengths;
    lengths.kind = LengthSource::Kind::File;
    lengths.file = parser.text("lengths");
    // Its errors name the user's file, not the copy.
    const std::vector<std::int64_t> all = generate_lengths(lengths, 0);
    advice.samples = std::ssize(all);
    advice.mean_length = std::accumulate(all.begin(), all.end(), 0.0) /
                         std::max(1.0, static_cast<double>(all.size()));
  }
  make_folder(folder);
  const std::string profile_path = (folder / "profile.json").string();
  std::vector<std::string> words = {own_program("stepcal"), "import", "run-record"};
  words.insert(words.end(), paths.begin(), paths.end());
  pass_on(parser, "plan", &words);
  pass_on(parser, "base", &words);
  words.insert(words.end(), {"--profile", profile_path});
  write_text_atomically((folder / "profile.txt").string(), import_output(words));
  common.scenario = (folder / "scenario.toml").string();
  if (starter.plays) {
    write_run_record((folder / "recorded.jsonl").string(), records.front().record);
  }
  if (parser.has("lengths")) {
    write_text_atomically((folder / "lengths.txt").string(), read_text(parser.text("lengths")));
  } else {
    write_text_atomically((folder / "lengths.json").string(), starter.lengths);
  }
  if (keeps_edited(common.scenario, starter.toml)) {
    warnings.push_back(fmt::format(
        "{} was edited and is used as it stands; what these records make is in scenario.made.toml",
        common.scenario));
  }

  const Scenario scenario = load_scenario(common);
  const Profile profile = scenario_profile(scenario);
  advice.price_per_hour = price;
  advice.stalls = profile.noise.stalls;
  const bool is_known = std::ranges::find(scenario.policies, starter.now, &BatchingPolicy::name) !=
                        scenario.policies.end();
  advice.recorded = is_known ? starter.now : scenario.policies.front().name();
  const LiveRun recorded =
      join_live_runs({&records.front().record},
                     std::max(scenario.warmup_steps, records.front().record.warmup_steps));
  advice.recorded_ms = mean(recorded.step_ms);
  Progress progress(fmt::format("predicting {} policies", scenario.policies.size()));
  PredictOptions options;
  options.on_progress = progress.callback();
  options.training_effects = true;
  advice.predictions = predict_policies(scenario, profile, options);
  progress.done();
  const Prediction* best = recommended(scenario, advice.predictions);
  const Prediction& now =
      *std::ranges::find(advice.predictions, advice.recorded, &Prediction::policy);
  const Prediction& chosen = best != nullptr ? *best : now;
  advice.caps = cap_advice(common, scenario, profile, chosen.policy);
  advice.options = options_of(common, scenario, profile, now, chosen, advice.caps);
  advice.blame = blame(scenario, find_policy(scenario, advice.recorded), profile);
  Json predictions = prediction_json(advice.predictions, StepRows::All);
  const Json answers = {
      {"recommendation", recommendation_json(recommend(scenario, advice.predictions))}};
  predictions.update(answers);
  write_text_atomically((folder / "prediction.json").string(), predictions.dump(1) + "\n");

  const std::string lines = fmt::format("{}\n\n", fmt::join(advice_lines(scenario, advice), "\n"));
  const bool can_plan = scenario.lengths.kind == LengthSource::Kind::File;
  std::string text = next_steps(scenario, advice, paths, folder, can_plan);
  text += fmt::format(
      "kept: {}/scenario.toml (and scenario.made.toml, as it was made), profile.json, profile.txt "
      "(how well it fits), {}{}, prediction.json\n",
      folder.string(),
      parser.has("lengths") ? "lengths.txt" : "lengths.json",
      starter.plays ? ", recorded.jsonl" : "");
  const std::vector<std::string> notes = note_texts(advice.predictions);
  warnings.insert(warnings.end(), notes.begin(), notes.end());
  for (const std::string& warning : warnings) {
    text += "warning: " + warning + "\n";
  }
  Answer answer;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) {
    return lines + advice_table(advice, screen) + "\n" + text;
  };
  answer.json = [=] { return advice_json(scenario, advice); };
  answer.html = [=, content = page_content("advise", parser, scenario)] {
    Json shown = answers;
    shown["options"] = advice_options_json(advice);
    return compare_page(common, content, scenario, profile, advice.predictions, shown);
  };
  return answer;
}

}  // namespace stepsim
