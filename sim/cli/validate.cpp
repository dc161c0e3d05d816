#include "sim/study/validate.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/records/record_files.h"
#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/cli/page.h"
#include "sim/cli/validate_step_times.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/html/page.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/validation/validation_markdown.h"
#include "sim/report/validation/validation_report.h"
#include "sim/report/validation/validation_words.h"

namespace stepsim {

namespace {

struct ValidateOptions {
  std::vector<std::string> live;
  std::string step_times;
  std::string predictions;
  double bound = 10;
};

constexpr const char* kValidateUsage =
    "usage: stepsim validate SCENARIO --live FILE… [--predictions FILE] [--bound PERCENT]\n"
    "                        [--report FILE] [options]\n"
    "       stepsim validate SCENARIO --step-times FILE [--bound PERCENT] [options]\n\n"
    "Predicted against measured: the step time of each recorded policy and which part of the step\n"
    "is off, the order of the policies, what the recommended one costs over the fastest, the\n"
    "coverage of the intervals, and how well the live runs repeat: smaller errors are\n"
    "indistinguishable from zero. Several records of one policy count as more passes. Exit status\n"
    "1 when the error of a mean exceeds the bound (10 % without --bound).\n\n"
    "With --predictions the figures come from a file that `stepsim compare --json` wrote before "
    "the\n"
    "live run; without it they are computed anew from the scenario and its profile. --report "
    "writes\n"
    "it all as a page of Markdown.\n\n"
    "--step-times takes a table of steps by placement and batch (stepcal import step-times --help\n"
    "says how it looks) as the measured side: each row is predicted with the scenario's first\n"
    "policy of fixed batches. The bound is then on the mean size of the errors.\n\n"
    "examples:\n"
    "  stepsim validate job.toml --step-times steps.csv\n"
    "  stepsim compare scenarios/token_skew_2ranks.toml --json prediction.json\n"
    "  python3 -m stepsim.torch.live plans/*.jsonl --out-dir live\n"
    "  stepsim validate scenarios/token_skew_2ranks.toml --live live/*.jsonl "
    "--predictions prediction.json --report validation.md --html page.html\n";

/// From a file made before the live run, else computed now.
std::vector<Prediction> predictions_for(const std::string& path,
                                        const Scenario& scenario,
                                        const Profile& profile) {
  if (!path.empty()) {
    std::vector<Prediction> predictions = read_predictions(path);
    for (const Prediction& prediction : predictions) {
      if (prediction.scenario != scenario.name) {
        throw InputError(SourcePlace{path},
                         "made for scenario '" + printable(prediction.scenario) + "', not '" +
                             scenario.name + "'");
      }
      if (prediction.steps.empty()) {
        throw InputError(SourcePlace{path}, "holds no steps; make it with: stepsim compare --json");
      }
    }
    return predictions;
  }
  std::vector<Prediction> predictions;
  const auto count = static_cast<double>(scenario.policies.size());
  Progress progress(fmt::format("predicting {} policies", count));
  for (const BatchingPolicy& policy : scenario.policies) {
    const auto before = static_cast<double>(predictions.size());
    PredictOptions options;
    options.on_progress = [&](double share) { progress.at((before + share) / count); };
    predictions.push_back(predict(scenario, policy, profile, options));
  }
  return predictions;
}

/// When the file was last written; empty for standard input.
std::string written_at(const std::string& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  if (error) {
    return "";
  }
  const auto since_1970 = std::chrono::file_clock::to_sys(time).time_since_epoch();
  return utc_text(std::chrono::floor<std::chrono::seconds>(since_1970).count());
}

std::vector<RecordFile> read_records(const std::vector<std::string>& paths,
                                     const Scenario& scenario,
                                     std::vector<std::string>& warnings) {
  std::vector<RecordFile> files = read_record_files(paths, &warnings);
  for (const RecordFile& file : files) {
    if (file.record.world_size != scenario.ranks) {
      throw InputError(SourcePlace{file.file},
                       "recorded on {} ranks, the scenario has {}",
                       file.record.world_size,
                       scenario.ranks);
    }
    check_gradients(file, scenario.model);
  }
  return files;
}

RunRecord without_steps(RunRecord record) {
  record.steps.clear();
  return record;
}

ValidationSources sources_of(const Request& request,
                             const std::string& predictions_path,
                             const Scenario& scenario,
                             const Profile& profile,
                             const std::vector<Prediction>& predictions,
                             const std::vector<RecordFile>& files) {
  ValidationSources sources;
  sources.command = request.command_line();
  sources.scenario = scenario;
  sources.profile_path = request.scenario.profile.value_or(scenario.profile);
  sources.profile = profile;
  if (!predictions_path.empty()) {
    sources.predictions_path = predictions_path;
    sources.predicted_at = written_at(sources.predictions_path);
    sources.predicted_with = predictions.empty() ? "" : predictions.front().profile;
    sources.predicted_with_id = predictions.empty() ? "" : predictions.front().profile_id;
  }
  for (const RecordFile& file : files) {
    sources.live.push_back({file.file, without_steps(file.record)});
  }
  return sources;
}

/// Each policy's steps, predicted and measured.
std::string validation_page(PageContent content,
                            const std::vector<Prediction>& predictions,
                            const Validation& validation,
                            const ValidationSources& sources,
                            double bound) {
  const Scenario& scenario = sources.scenario;
  content.result = validation_json(validation, sources, bound);
  content.headline = verdict(validation, sources, bound);
  content.recommended = validation.recommended;
  content.warnings = validation.warnings;
  for (const PolicyValidation& policy : validation.policies) {
    const auto prediction = std::ranges::find_if(
        predictions, [&](const Prediction& one) { return one.policy == policy.policy; });
    content.series.push_back(measured_series_json(*prediction, policy, scenario.warmup_steps));
  }
  return page_text(page_data(scenario, sources.profile, std::move(content)));
}

/// Raises InputError where options do not go together.
void check(const Request& request, const ValidateOptions& options) {
  if (options.live.empty() && options.step_times.empty()) {
    request.fail("give --live FILE… (of stepsim.torch.live or the recorder) or --step-times FILE");
  }
  if (!options.live.empty() && !options.step_times.empty()) {
    request.fail("--step-times takes the place of --live; give one of them");
  }
  if (!options.step_times.empty() &&
      !(options.predictions.empty() && request.outputs.markdown.empty() &&
        request.outputs.html.empty())) {
    request.fail("--step-times goes with --json, --csv and --bound only");
  }
}

Answer ask_validate(const Request& request, const ValidateOptions& options) {
  const AskedScenario asked = asked_scenario(request);
  check(request, options);
  const double bound = options.bound / 100;
  const Scenario scenario = asked.read();
  if (!options.step_times.empty()) {
    return validate_step_times(scenario, options.step_times, bound);
  }
  const Profile profile = scenario_profile(scenario);
  std::vector<std::string> warnings;
  const std::vector<RecordFile> files = read_records(options.live, scenario, warnings);
  std::vector<RunRecord> records = mapped(files, &RecordFile::record);
  for (RunRecord& record : records) {
    if (!has_sentinel_of(record, profile)) {
      record.sentinel_ms.clear();
    }
  }
  std::vector<std::string> reference;
  for (const BatchingPolicy& policy : scenario.policies) {
    if (policy.is_reference()) {
      reference.push_back(policy.name());
    }
  }
  const std::vector<Prediction> predictions =
      predictions_for(options.predictions, scenario, profile);
  Validation validation = validate(predictions,
                                   reference,
                                   records,
                                   scenario.warmup_steps,
                                   profile.noise.sentinel_seconds,
                                   recording_spans(profile));
  validation.live_slowed =
      slowed_by_others(records, scenario.warmup_steps, scenario.cores.value_or(profile.cores));
  if (profile.provenance->is_object() && profile.provenance->contains("recorded")) {
    validation.recorded_slowed = profile.noise.crowded.slowed;
  }
  const ValidationSources sources =
      sources_of(request, options.predictions, scenario, profile, predictions, files);
  std::ranges::move(source_warnings(sources), std::back_inserter(warnings));
  const std::vector<Prediction> of_notes = mapped(predictions, [](const Prediction& prediction) {
    Prediction one = noted(prediction.notes).front();
    one.policy = prediction.policy;
    return one;
  });
  std::ranges::move(note_texts(of_notes), std::back_inserter(warnings));
  validation.warnings.insert(validation.warnings.begin(), warnings.begin(), warnings.end());
  Answer answer;
  answer.status = validation.holds(bound) ? kDone : kAnswerIsNo;
  answer.text = [=](const Screen& screen) {
    return validation_text(validation, sources, bound, screen);
  };
  answer.json = [=] { return validation_json(validation, sources, bound); };
  answer.csv = [=] { return validation_csv(validation); };
  answer.markdown = [=] { return validation_markdown(validation, sources, bound); };
  answer.html = [=, content = page_content(request, scenario)] {
    return validation_page(content, predictions, validation, sources, bound);
  };
  return answer;
}

}  // namespace

Question validate_question() {
  using Q = ValidateOptions;
  return question(
      "validate",
      "predicted against measured",
      kValidateUsage,
      option_table(
          {scenario_options(),
           page_options(),
           {option("live", &Q::live, "FILE…: run records").up_to_next_option(),
            option("step-times", &Q::step_times, "FILE: a table of measured steps instead, as CSV"),
            option("predictions", &Q::predictions, "FILE: predictions made before the live run"),
            option("bound", &Q::bound, "PERCENT: largest error of a mean").above(0),
            option("report", &Outputs::markdown, "FILE or -: write the comparison as Markdown")
                .written()}}),
      ask_validate);
}

}  // namespace stepsim
