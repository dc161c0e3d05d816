#include <string>
#include <vector>

#include "calibrate/cli/commands.h"
#include "calibrate/import/step_times/step_time_import.h"
#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

struct StepTimeOptions {
  std::vector<std::string> files;
  std::string out;
  std::string preset;
  std::string tensors;
  std::string record;
  std::string gradient_bytes;
  std::string bucket_cap;
  std::string first_bucket_cap;
  std::string links;
  std::string base;
  std::string scenario;
  bool no_overlap = false;
  std::vector<std::string> ask;
  std::string answers;
};

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
    "the placement. MODEL says what is reduced: --preset, --tensors (of a config.json: stepsim\n"
    "models config.json --csv tensors.csv), --record or --gradient-bytes.\n"
    "It prints what the rows tell, with intervals, and which row to time next.\n\n"
    "examples:\n"
    "  stepcal import step-times steps.csv --preset bert-base --out job.json --scenario job.toml\n"
    "  stepsim sweep job.toml --over cluster.placement=2x4,4x4,8x4\n"
    "  stepcal import step-times steps.csv --gradient-bytes \"97 MiB\" --out job.json\n"
    "  stepcal import step-times alone.csv --tensors resnet50.csv --links job.json --out "
    "other.json\n";

/// What the options ask for, once they are complete.
StepTimeImport import_of(const CommandRequest& request, const StepTimeOptions& options) {
  if (options.files.size() != 1) {
    request.fail("give one table of step times");
  }
  if (options.out.empty()) {
    request.fail("give --out PROFILE");
  }
  StepTimeImport import;
  import.table = options.files.front();
  import.model = {options.preset, options.tensors, options.record, options.gradient_bytes};
  import.bucket_cap = options.bucket_cap;
  import.first_bucket_cap = options.first_bucket_cap;
  import.links = options.links;
  import.scenario = options.scenario;
  import.ask = options.ask;
  import.answers = !options.answers.empty();
  import.no_overlap = options.no_overlap;
  import.profile = {options.out, options.base, request.command_line()};
  if (!import.model.is_one()) {
    request.fail(kOneModel);
  }
  return import;
}

Answer ask_step_times(const CommandRequest& request, const StepTimeOptions& options) {
  const StepTimeImport import = import_of(request, options);
  try {
    const ImportedStepTimes imported = import_step_times(import);
    write_profile(options.out, imported.profile.profile);
    std::string written = options.out;
    if (!options.scenario.empty()) {
      write_text_atomically(options.scenario, imported.scenario);
      written += " and " + options.scenario;
    }
    if (!options.answers.empty()) {
      write_text_atomically(options.answers, imported.answers);
      written += " and " + options.answers;
    }
    Answer answer;
    answer.text = [=, profile = imported.profile](const Screen& screen) {
      return import_text(profile, written, screen);
    };
    return answer;
  } catch (const FieldError& error) {
    request.fail(error.what());
  }
}

}  // namespace

StepcalCommand import_step_times_command() {
  using O = StepTimeOptions;
  return question_row(
      "import step-times",
      "step times by placement and batch, in a table",
      kImportStepTimesUsage,
      {option("files", &O::files, "TABLE: step times, as CSV").positional(-1),
       option("out", &O::out, "PROFILE or -: profile to write").written(),
       option("preset", &O::preset, "NAME: the model, one of stepsim models"),
       option("tensors", &O::tensors, "FILE: the model as a CSV of its tensors: name, shape"),
       option("record", &O::record, "RUN: a run record that describes its model"),
       option("gradient-bytes",
              &O::gradient_bytes,
              "SIZE: only how many bytes of gradients there are"),
       option("bucket-cap", &O::bucket_cap, "SIZE: DDP's bucket_cap_mb; 25 MiB"),
       option("first-bucket-cap", &O::first_bucket_cap, "SIZE: of the first bucket; 1 MiB"),
       option("no-overlap",
              &O::no_overlap,
              "the job reduces its gradients after the backward, not beside it"),
       option("links", &O::links, "PROFILE: whose fitted links are those of this cluster"),
       option("base", &O::base, "PROFILE: that has all else, as memory"),
       option("scenario", &O::scenario, "FILE: a scenario to write, for stepsim sweep").written(),
       option("ask",
              &O::ask,
              "PLACEMENT: what you want to know, by which the next run is chosen; 8x4:16 is a "
              "batch of 16; may repeat"),
       option("answers",
              &O::answers,
              "FILE: what is asked, as CSV with the intervals of 50, 80, 90 and 95 %")
           .written()},
      ask_step_times);
}

}  // namespace stepsim
