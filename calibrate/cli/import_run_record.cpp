#include "calibrate/cli/commands.h"
#include "calibrate/cli/import_profile.h"
#include "calibrate/import/recorded/recorded_import.h"

namespace stepsim {
namespace {

struct RunRecordOptions {
  std::vector<std::string> records;
  std::vector<std::string> plans;
  std::string profile;
  std::string base;
  std::optional<std::string> fit;
};

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

Answer ask_run_record(const CommandRequest& request, const RunRecordOptions& options) {
  if (options.records.empty()) {
    request.fail("no run record given");
  }
  if (options.profile.empty()) {
    request.fail("give --profile OUT");
  }
  const std::string fit = options.fit.value_or("passes");
  if (fit != "passes" && fit != "whole") {
    request.fail("--fit: expected passes or whole");
  }
  RunRecordImport import;
  import.records = options.records;
  import.plans = options.plans;
  import.form = fit == "whole" ? RecordedForm::WholeSteps : RecordedForm::Passes;
  import.profile = {options.profile, options.base, request.command_line()};
  return profile_answer(options.profile, import_run_records(import));
}

}  // namespace

StepcalCommand import_run_record_command() {
  using O = RunRecordOptions;
  return question_row(
      "import run-record",
      "the recorded steps of a training",
      kImportRunRecordUsage,
      {option("files", &O::records, "RECORD…: run records").positional(-1),
       option("plan", &O::plans, "PLAN: what they ran; may repeat"),
       option("profile", &O::profile, "PROFILE or -: profile to write").written(),
       option("base", &O::base, "PROFILE: that has all else, as all-reduces and memory"),
       option("fit",
              &O::fit,
              "passes|whole: passes and all-reduces as far as the record tells them apart, or "
              "whole steps, which know no network")},
      ask_run_record);
}

}  // namespace stepsim
