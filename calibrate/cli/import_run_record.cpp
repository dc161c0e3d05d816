#include "calibrate/cli/cli.h"
#include "calibrate/cli/import_profile.h"
#include "calibrate/cli/options.h"
#include "calibrate/import/recorded/recorded_import.h"

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
  RunRecordImport import;
  import.records = parser.list("files");
  import.plans = parser.list("plan");
  import.form = fit == "whole" ? RecordedForm::WholeSteps : RecordedForm::Passes;
  import.profile = profile_request(parser);
  write_imported(import.profile.out, import_run_records(import));
  return kDone;
}

}  // namespace stepsim
