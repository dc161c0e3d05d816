#include <string>
#include <vector>

#include "calibrate/cli/cli.h"
#include "calibrate/cli/options.h"
#include "calibrate/import/step_times/step_time_import.h"
#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

constexpr const char* kImportStepTimesUsage =
    "usage: stepcal import step-times TABLE.csv MODEL --out PROFILE [options]\n\n"
    "Makes a profile of step times that you wrote down: one row a placement and batch, as\n\n"
    "  placement,batch,step_ms\n"
    "  1,8,212\n"
    "  4,8,231\n"
    "  1+1,8,395\n\n"
    "for one rank, four on a node, and one on each of two nodes. A rank alone tells the compute,\n"
    "two nodes and three or four nodes tell the links. Further columns: length or tokens; sync_ms\n"
    "(exposed communication), backward_ms, data_ms, sd_ms, repeats; or nodes and ranks in place "
    "of\n"
    "the placement. MODEL says what is reduced: --preset, --tensors, --record or "
    "--gradient-bytes.\n"
    "It prints what the rows tell, with intervals, and which row to time next.\n\n"
    "examples:\n"
    "  stepcal import step-times steps.csv --preset bert-base --out job.json --scenario job.toml\n"
    "  stepsim sweep job.toml --over cluster.placement=2x4,4x4,8x4\n"
    "  stepcal import step-times steps.csv --gradient-bytes \"97 MiB\" --out job.json\n"
    "  stepcal import step-times alone.csv --tensors resnet50.csv --links job.json --out "
    "other.json\n";

/// What the options ask for, once they are complete.
StepTimeImport import_of(const OptionParser& parser) {
  const std::vector<std::string> files = parser.list("files");
  if (files.size() != 1) {
    parser.fail("give one table of step times");
  }
  if (!parser.has("out")) {
    parser.fail("give --out PROFILE");
  }
  StepTimeImport import;
  import.table = files.front();
  import.model = {parser.text("preset"),
                  parser.text("tensors"),
                  parser.text("record"),
                  parser.text("gradient-bytes")};
  import.bucket_cap = parser.text("bucket-cap");
  import.first_bucket_cap = parser.text("first-bucket-cap");
  import.links = parser.text("links");
  import.scenario = parser.text("scenario");
  import.ask = parser.list("ask");
  import.profile = {parser.text("out"), parser.text("base"), parser.command_line()};
  if (!import.model.is_one()) {
    parser.fail(kOneModel);
  }
  return import;
}

void write_step_times(const StepTimeImport& import, const ImportedStepTimes& imported) {
  const std::string& out = import.profile.out;
  write_profile(out, imported.profile.profile);
  if (!import.scenario.empty()) {
    write_text_atomically(import.scenario, imported.scenario);
  }
  if (out != "-") {
    const std::string written = import.scenario.empty() ? out : out + " and " + import.scenario;
    print_report(import_text(imported.profile, written, output_screen()));
  }
}

}  // namespace

int import_step_times_command(const std::vector<std::string>& arguments) {
  OptionParser parser("import step-times", kImportStepTimesUsage);
  parser.add(
      {{"files", option_value<std::vector<std::string>>(), "TABLE: step times, as CSV"},
       {"out", option_text(), "PROFILE or -: profile to write", true},
       {"preset", option_text(), "NAME: the model, one of stepsim models"},
       {"tensors", option_text(), "FILE: the model as a CSV of its tensors: name, shape"},
       {"record", option_text(), "RUN: a run record that describes its model"},
       {"gradient-bytes", option_text(), "SIZE: only how many bytes of gradients there are"},
       {"bucket-cap", option_text(), "SIZE: DDP's bucket_cap_mb; 25 MiB"},
       {"first-bucket-cap", option_text(), "SIZE: of the first bucket; 1 MiB"},
       {"links", option_text(), "PROFILE: whose fitted links are those of this cluster"},
       {"base", option_text(), "PROFILE: that has all else, as memory"},
       {"scenario", option_text(), "FILE: a scenario to write, for stepsim sweep", true},
       {"ask",
        option_value<std::vector<std::string>>(),
        "PLACEMENT: what you want to know, by which the next run is chosen; 8x4:16 is a batch of "
        "16; may repeat"}});
  parser.positional("files", -1);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const StepTimeImport import = import_of(parser);
  try {
    write_step_times(import, import_step_times(import));
  } catch (const FieldError& error) {
    parser.fail(error.what());
  }
  return kDone;
}

}  // namespace stepsim
