#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/cli.h"
#include "calibrate/cli/import_profile.h"
#include "calibrate/cli/options.h"
#include "calibrate/import/recorded/recorded_plan.h"
#include "calibrate/import/recorded/recorded_run.h"
#include "costmodel/base/input_error.h"
#include "costmodel/records/record_files.h"

namespace stepsim {
namespace {

constexpr const char* kImportRunRecordUsage =
    "usage: stepcal import run-record RECORD… [--plan PLAN…] --profile OUT [--base PROFILE]\n\n"
    "Makes a profile of a training's own steps. A few dozen steps of ONE policy, recorded with\n"
    "stepsim_recorder.py or stepsim_live.py, give forward, backward, optimizer and data times as\n"
    "functions of the batch, with their errors on held-out steps and sizes. stepsim compare\n"
    "--profile OUT then predicts other policies of the same model. Record a policy whose batches\n"
    "differ much in length and tokens, or give the records of several policies together: what\n"
    "their batches have between them is measured, what is beyond is a guess.\n\n"
    "A record made with Recorder(…, model=ddp) describes its model and needs no PLAN; name it in\n"
    "a scenario as [model] kind = \"recorded\". Otherwise PLAN says what ran (stepsim plan); each\n"
    "record takes the plan of its policy. Records with bucket times (recorder.watch) also give\n"
    "all-reduce times of their sizes; for other bucket sizes, measure all-reduces and give them\n"
    "with --base.\n\n"
    "examples:\n"
    "  stepcal import run-record run.jsonl --profile mine.json\n"
    "  stepcal import run-record random.jsonl sorted.jsonl --profile mine.json\n"
    "  stepsim plan SCENARIO.toml --policy bucketed --out plan.jsonl\n"
    "  stepcal import run-record run.jsonl --plan plan.jsonl --profile mine.json\n"
    "  stepcal import nccl-tests all_reduce.log --profile network.json\n"
    "  stepcal import run-record run.jsonl --plan plan.jsonl --base network.json \\\n"
    "      --profile mine.json\n";

std::vector<Plan> read_plans(const std::vector<std::string>& paths) {
  std::vector<Plan> plans;
  for (const std::string& path : paths) {
    plans.push_back(read_plan(path));
    for (std::size_t i = 0; i + 1 < plans.size(); ++i) {
      if (plans[i].policy == plans.back().policy) {
        throw InputError(SourcePlace{path},
                         "a second plan of policy '" + printable(plans.back().policy) + "'");
      }
    }
  }
  return plans;
}

/// The record's own plan; a single plan serves records that name no policy.
Plan plan_of(const RunRecord& record, const std::string& path, const std::vector<Plan>& plans) {
  for (const Plan& plan : plans) {
    if (plan.policy == record.policy || (record.policy.empty() && plans.size() == 1)) {
      return plan;
    }
  }
  throw InputError(
      SourcePlace{path}, "recorded policy '{}', and no --plan is of it", printable(record.policy));
}

/// Says which shapes stepsim_calibrate.py skipped.
void add_skipped(const RecordFile& file, std::vector<std::string>* warnings) {
  if (!file.record.training->contains("calibration")) {
    return;
  }
  JsonReader calibration((*file.record.training)["calibration"], file.file, 1, "calibration");
  for (JsonReader& shape : calibration.objects("skipped")) {
    warnings->push_back(fmt::format("{}: skipped {} samples x {}: {}",
                                    printable(file.file),
                                    shape.integer("samples"),
                                    shape.integer("length"),
                                    printable(shape.text("why"))));
  }
}

}  // namespace

int import_run_record_command(const std::vector<std::string>& arguments) {
  OptionParser parser("import run-record", kImportRunRecordUsage);
  parser.add(
      {{"files", option_value<std::vector<std::string>>(), "RECORD…: run records"},
       {"plan", option_value<std::vector<std::string>>(), "PLAN: what they ran; may repeat"},
       {"profile", option_text(), "PROFILE or -: profile to write", true},
       {"base", option_text(), "PROFILE: that has all else, as all-reduces and memory"},
       {"fit",
        option_text(),
        "passes|whole: passes and all-reduces as far as the record tells them apart, or whole "
        "steps, which know no network"}});
  parser.positional("files", -1);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  if (parser.list("files").empty()) {
    parser.fail("no run record given");
  }
  if (!parser.has("profile")) {
    parser.fail("give --profile OUT");
  }
  const std::string fit = parser.has("fit") ? parser.text("fit") : "passes";
  if (fit != "passes" && fit != "whole") {
    parser.fail("--fit: expected passes or whole");
  }
  const std::vector<Plan> plans = read_plans(parser.list("plan"));
  std::vector<RecordedRun> runs;
  std::vector<std::string> warnings;
  std::vector<RecordFile> files = read_record_files(parser.list("files"), &warnings);
  // Without any plan the records have to describe what ran.
  std::vector<Plan> ran = plans.empty() ? recorded_plans(files) : std::vector<Plan>{};
  for (std::size_t i = 0; i < files.size(); ++i) {
    RecordFile& file = files[i];
    Plan plan = plans.empty() ? std::move(ran[i]) : plan_of(file.record, file.file, plans);
    check_gradients(file, plan.model);
    add_skipped(file, &warnings);
    runs.push_back({std::move(file.record), std::move(plan), file.file});
  }
  RecordedCosts costs =
      fit_recorded_runs(runs, fit == "whole" ? RecordedForm::WholeSteps : RecordedForm::Passes);
  costs.warnings.insert(costs.warnings.begin(), warnings.begin(), warnings.end());
  const std::optional<Profile> base = read_base(parser);
  write_recorded_profile(parser, costs, runs, base ? &*base : nullptr);
  return kDone;
}

}  // namespace stepsim
