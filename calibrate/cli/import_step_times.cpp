#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/cli.h"
#include "calibrate/cli/options.h"
#include "calibrate/import/recorded/recorded_plan.h"
#include "calibrate/import/step_times/step_time_advice.h"
#include "calibrate/import/step_times/step_time_profile.h"
#include "calibrate/import/step_times/step_time_report.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/model/tensor_list.h"
#include "costmodel/records/record_files.h"

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

constexpr std::array<const char*, 4> kModelOptions = {
    "preset", "tensors", "record", "gradient-bytes"};

/// A chain of equal tensors, since only the bytes are known.
TransformerConfig chain_of_bytes(const OptionParser& parser) {
  Bytes bytes;
  try {
    bytes = parse_bytes(parser.text("gradient-bytes"));
  } catch (const InputError& error) {
    parser.fail(std::string("--gradient-bytes: ") + error.what());
  }
  constexpr std::int64_t kSize = 4;                              // fp32
  constexpr std::int64_t kTensorBytes = std::int64_t{4} << 20U;  // A layer of a common network.
  constexpr std::int64_t kMostTensors = 400;
  if (bytes.value() < kSize) {
    parser.fail("--gradient-bytes: expected at least one gradient of 4 bytes");
  }
  const std::int64_t tensors =
      std::clamp<std::int64_t>(bytes.value() / kTensorBytes, 1, kMostTensors);
  std::vector<TensorBlock> chain;
  for (std::int64_t i = 0; i < tensors; ++i) {
    const std::int64_t elements = bytes.value() / kSize / tensors;
    chain.push_back({fmt::format("part{}", i), {std::max<std::int64_t>(elements, 1)}, 1, 1});
  }
  return tensor_chain("gradients", std::move(chain));
}

TransformerConfig model_of(const OptionParser& parser) {
  const auto given =
      std::ranges::count_if(kModelOptions, [&](const char* option) { return parser.has(option); });
  if (given != 1) {
    parser.fail(
        "say what is trained by one of --preset NAME, --tensors FILE, --record RUN.jsonl and "
        "--gradient-bytes SIZE");
  }
  if (parser.has("preset")) {
    return model_preset(parser.text("preset"));
  }
  if (parser.has("tensors")) {
    const std::string path = parser.text("tensors");
    try {
      return tensor_chain(std::filesystem::path(path).stem().string(), read_tensor_list(path));
    } catch (const FieldError& error) {
      throw InputError(SourcePlace{path}, error.what());
    }
  }
  if (parser.has("record")) {
    const std::vector<std::string> record = {parser.text("record")};
    const std::vector<RecordFile> files = read_record_files(record, nullptr);
    return recorded_plan(files.front().record, files.front().file).model;
  }
  return chain_of_bytes(parser);
}

std::int64_t bytes_option(const OptionParser& parser, const char* name, std::int64_t fallback) {
  if (!parser.has(name)) {
    return fallback;
  }
  try {
    return parse_bytes(parser.text(name)).value();
  } catch (const InputError& error) {
    parser.fail(fmt::format("--{}: {}", name, error.what()));
  }
}

/// "8x4" or "8x4:12": a placement, on the largest batch or on a stated one.
std::vector<StepTimeQuestion> asked(const OptionParser& parser, const StepTimeFit& fit) {
  std::vector<StepTimeQuestion> questions;
  for (const std::string& text : parser.list("ask")) {
    const std::size_t colon = text.find(':');
    StepTimeQuestion question;
    try {
      question.placement = parse_placement(text.substr(0, colon));
    } catch (const InputError& error) {
      parser.fail(std::string("--ask: ") + error.what());
    }
    question.compute = fit.job.compute.size() - 1;
    if (colon != std::string::npos) {
      const auto known = mapped(fit.job.compute, [](const ComputePoint& point) {
        return fmt::format("{}", point.batch);
      });
      const auto found = std::ranges::find(known, text.substr(colon + 1));
      if (found == known.end()) {
        parser.fail(fmt::format(
            "--ask {}: batches of the table are {}", printable(text), fmt::join(known, ", ")));
      }
      question.compute = static_cast<std::size_t>(found - known.begin());
    }
    questions.push_back(question);
  }
  return questions;
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
  const std::vector<std::string> files = parser.list("files");
  if (files.size() != 1) {
    parser.fail("give one table of step times");
  }
  if (!parser.has("out")) {
    parser.fail("give --out PROFILE");
  }
  const StepTimeTable table = read_step_times(files.front());
  const std::int64_t first = bytes_option(parser, "first-bucket-cap", kDefaultFirstBucketBytes);
  const std::int64_t cap = bytes_option(parser, "bucket-cap", kDefaultBucketCapBytes);
  const StepTimeJob job = step_time_job(table, model_of(parser), first, cap);
  std::optional<FittedLinks> known;
  if (parser.has("links")) {
    known = read_profile(parser.text("links")).links;
    if (!known) {
      throw InputError(SourcePlace{parser.text("links")},
                       "has no links fitted to step times; make it with stepcal import step-times");
    }
  }
  std::optional<Profile> base;
  if (parser.has("base")) {
    base = read_profile(parser.text("base"));
  }
  const StepTimeFit fit = fit_step_times(table, job, known);
  std::vector<StepTimeQuestion> questions = asked(parser, fit);
  if (questions.empty()) {
    questions = usual_questions(fit, table);
  }
  const std::vector<NextRun> next = rank_next_runs(fit, candidate_runs(fit, table), questions);
  Profile profile = step_time_profile(fit, base ? &*base : nullptr);
  const std::string out = parser.text("out");
  profile.name = out == "-" ? "step_times" : std::filesystem::path(out).stem().string();
  (*profile.provenance)["step_times"] = {
      {"command", parser.command_line()}, {"date", utc_now()}, {"rows", table.rows.size()}};
  write_profile(out, profile);
  const std::string scenario = parser.text("scenario");
  if (!scenario.empty()) {
    const std::filesystem::path folder = std::filesystem::path(scenario).parent_path();
    const std::filesystem::path named =
        std::filesystem::relative(out, folder.empty() ? "." : folder);
    write_text_atomically(scenario, step_time_scenario(fit, table, named.string(), first, cap));
  }
  if (out == "-") {
    return kDone;
  }
  std::string text = step_time_report(fit, table, questions, next, output_screen());
  for (const std::string& column : table.ignored) {
    text += fmt::format("note: column '{}' says nothing to this command\n", printable(column));
  }
  text += fmt::format("\nwrote {}{}\n", out, scenario.empty() ? "" : " and " + scenario);
  text += scenario.empty()
              ? fmt::format("next: give --scenario FILE.toml too, for stepsim sweep\n")
              : fmt::format("next: stepsim sweep {} --over cluster.placement=2x4,4x4,8x4\n",
                            shell_word(scenario));
  print_report(text);
  return kDone;
}

}  // namespace stepsim
