#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/commands.h"
#include "calibrate/cli/import_profile.h"
#include "calibrate/import/import_samples.h"
#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_profile.h"
#include "calibrate/import/kineto/kineto_program.h"
#include "calibrate/import/kineto/kineto_record.h"
#include "calibrate/import/kineto/kineto_report.h"
#include "calibrate/import/kineto/kineto_samples.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/progress.h"

namespace stepsim {
namespace {

struct KinetoOptions {
  std::vector<std::string> traces;
  std::string program;
  std::optional<std::int64_t> step;
  std::string transfers;
  std::string out;
  std::string profile;
  std::string base;
  std::string run_record;
  std::string dims;
  std::optional<int> nodes;
  std::string device;
};

constexpr const char* kImportKinetoUsage =
    "usage: stepcal import kineto TRACE… [options]\n\n"
    "What took the time in a recorded step? Reads traces of PyTorch's profiler (.json or "
    ".json.gz,\n"
    "every version), one for each rank of a run, and lists steps, collectives with their sizes,\n"
    "DDP's buckets, and compute by class. A recorded NCCL kernel includes the wait for the last\n"
    "rank; with the traces of all ranks the time of each collective is told apart from it.\n"
    "--program writes one step for stepsim replay: step N, or the last whole one. --out and\n"
    "--profile take the collectives whose ranks all have a trace. Where record_shapes was on,\n"
    "--profile also fits forward, backward and optimizer to the steps' batches, as stepcal import\n"
    "run-record does: a scenario names that model as [model] kind = \"recorded\". No GPU is\n"
    "needed.\n\n"
    "Record with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1,\n"
    "active=12), record_shapes=True) and call step() once a step, ten steps or more whose batches\n"
    "differ. Without a schedule PyTorch marks no steps.\n\n"
    "examples:\n"
    "  stepcal import kineto rank0.pt.trace.json.gz\n"
    "  stepcal import kineto rank*.pt.trace.json.gz --json trace.json\n"
    "  stepcal import kineto rank*.pt.trace.json.gz --program step && stepsim replay step\n"
    "  stepcal import kineto rank*.pt.trace.json.gz --base PROFILE.json --profile mine.json\n";

/// What traces hold, and what they were asked for.
struct KinetoFound {
  KinetoOptions options;
  std::vector<KinetoTrace> traces;
  KinetoMatches matches;
  KinetoRecord steps;
};

Answer text_answer(std::string text) {
  Answer answer;
  answer.text = [text = std::move(text)](const Screen&) { return text; };
  return answer;
}

std::string program_text(const std::string& folder, const KinetoProgram& program) {
  std::vector<std::string> ranks;
  std::size_t rows = 0;
  for (const KinetoProgramRank& rank : program.ranks) {
    ranks.push_back(std::to_string(rank.rank));
    rows += rank.rows.size();
  }
  std::string text = fmt::format(
      "\nwrote {}: step {} of rank {} (in the program from 0 on), {} rows, {} collectives\n",
      printable(folder),
      program.step,
      fmt::join(ranks, ", "),
      rows,
      program.collectives.size());
  const auto bounds =
      std::ranges::count_if(program.collectives, [](const auto& one) { return one.upper_bound; });
  if (bounds > 0) {
    text += fmt::format(
        "note: {} of {} transfer times are upper bounds, because traces of other ranks are "
        "missing: the replay ends these collectives as recorded, but says nothing of another "
        "link\n",
        bounds,
        program.collectives.size());
  }
  for (const std::string& note : program.notes) {
    text += "note: " + note + "\n";
  }
  return text + fmt::format("next: stepsim replay {}\n", shell_word(folder));
}

/// Writes one step as a program.
Answer program_answer(const KinetoFound& found) {
  const KinetoOptions& options = found.options;
  KinetoProgram program = make_kineto_program(found.traces, found.matches, options.step);
  if (!options.transfers.empty()) {
    price_transfers(read_profile(options.transfers), options.nodes.value_or(1), &program);
  }
  write_kineto_program(options.program, program);
  return text_answer(program_text(options.program, program));
}

/// Writes the steps as a run record.
Answer record_answer(const KinetoFound& found) {
  const KinetoOptions& options = found.options;
  const KinetoRecord& steps = found.steps;
  if (!steps.record) {
    throw InputError(SourcePlace{options.traces.front()},
                     "no run record can be made: " + steps.problem);
  }
  write_run_record(options.run_record, *steps.record);
  std::string text = "\n";
  for (const std::string& note : steps.notes) {
    text += "note: " + note + "\n";
  }
  for (const std::string& warning : steps.warnings) {
    text += "warning: " + warning + "\n";
  }
  return text_answer(text +
                     fmt::format("wrote {}: {} steps of {} ranks\nnext: stepcal import run-record "
                                 "{} --profile mine.json\n",
                                 printable(options.run_record),
                                 steps.record->steps.back().step + 1,
                                 options.traces.size(),
                                 shell_word(options.run_record)));
}

std::string taken_text(const KinetoTaken& taken, const std::vector<KinetoTrace>& traces) {
  std::string text = "\n";
  if (!taken.samples.groups.empty()) {
    text += fmt::format("collective samples: {}\n", fmt::join(taken.samples.groups, "; "));
  }
  for (const std::string& one : taken.samples.left_out) {
    text += "left out: " + one + "\n";
  }
  if (const std::string why = why_no_steps(taken.steps); !why.empty()) {
    const bool has_times =
        std::ranges::any_of(traces, [](const KinetoTrace& trace) { return !trace.ops.empty(); });
    text += fmt::format("note: compute goes into no profile: {}{}\n",
                        why,
                        has_times ? "; a scenario takes it as [times], see above" : "");
  }
  return text;
}

Answer kineto_samples_answer(const std::string& out,
                             const Json& header,
                             const KinetoSamples& samples) {
  write_imports(out, header, samples.collectives);
  return text_answer(fmt::format(
      "wrote {}\nnext: stepcal fit {} --out PROFILE.json\n", printable(out), shell_word(out)));
}

/// What a profile can take from the traces; then the samples file, and the profile.
Answer taken_answer(const KinetoFound& found, const std::string& command) {
  const KinetoOptions& options = found.options;
  const KinetoTaken taken = {kineto_samples(found.traces, found.matches, options.nodes),
                             found.steps};
  const std::string why = why_no_steps(taken.steps);
  if (!options.out.empty() || !why.empty()) {
    require_samples(taken.samples, found.traces, why);
  }
  const Json header = import_header(taken.samples.device, {options.device, command, utc_now()});
  Answer answer = text_answer(taken_text(taken, found.traces));
  if (!options.out.empty()) {
    answer.then.emplace_back(
        [=] { return kineto_samples_answer(options.out, header, taken.samples); });
  }
  if (!options.profile.empty()) {
    answer.then.emplace_back([=] {
      return profile_answer(
          options.profile,
          kineto_profile(taken, options.traces, header, {options.profile, options.base, command}));
    });
  }
  return answer;
}

void check_kineto_options(const CommandRequest& request, const KinetoOptions& options) {
  if (options.step && options.program.empty()) {
    request.fail("--step goes with --program");
  }
  if (!options.transfers.empty() && options.program.empty()) {
    request.fail("--transfers goes with --program");
  }
  if (!options.base.empty() && options.profile.empty()) {
    request.fail("--base goes with --profile");
  }
  if (options.nodes.value_or(1) < 1) {
    request.fail("--nodes: at least 1");
  }
  if (!options.dims.empty() && options.dims != "samples,length" &&
      options.dims != "length,samples") {
    request.fail("--dims: expected samples,length or length,samples");
  }
  if (options.traces.empty()) {
    request.fail("no trace given");
  }
}

/// Reads the traces, with a bar.
std::vector<KinetoTrace> read_traces(const std::vector<std::string>& files) {
  std::vector<KinetoTrace> traces;
  Progress progress(fmt::format("reading {} trace{}", files.size(), files.size() > 1 ? "s" : ""));
  for (const std::string& file : files) {
    const auto before = static_cast<double>(traces.size());
    traces.push_back(read_kineto(file, [&](double share) {
      progress.at((before + share) / static_cast<double>(files.size()));
    }));
  }
  progress.done();
  return traces;
}

KinetoFound read_found(const KinetoOptions& options) {
  KinetoFound found;
  found.options = options;
  found.traces = read_traces(options.traces);
  found.matches = match_collectives(found.traces);
  const std::optional<bool> length_first =
      options.dims.empty() ? std::nullopt : std::optional(options.dims == "length,samples");
  found.steps = kineto_record(found.traces, found.matches, length_first, options.device);
  return found;
}

Answer ask_kineto(const CommandRequest& request, const KinetoOptions& options) {
  check_kineto_options(request, options);
  const auto found = std::make_shared<const KinetoFound>(read_found(options));
  Answer answer;
  answer.json = [found] { return kineto_json(found->traces, found->matches); };
  if (!options.program.empty()) {
    answer.then.emplace_back([found] { return program_answer(*found); });
  }
  if (!options.run_record.empty()) {
    answer.then.emplace_back([found] { return record_answer(*found); });
  }
  if (!options.out.empty() || !options.profile.empty()) {
    answer.then.emplace_back(
        [found, command = request.command_line()] { return taken_answer(*found, command); });
  }
  const bool is_all = answer.then.empty() && request.outputs.json.empty();
  answer.text = [found, is_all](const Screen& screen) {
    return kineto_report(found->traces, found->matches, screen) +
           (is_all ? "next: --json trace.json writes every collective and step by itself\n" : "");
  };
  return answer;
}

}  // namespace

StepcalCommand import_kineto_command() {
  using O = KinetoOptions;
  return question_row(
      "import kineto",
      "traces of PyTorch's profiler",
      kImportKinetoUsage,
      {option("traces", &O::traces, "TRACE… or -: traces, one a rank").positional(-1),
       option("json", &Outputs::json, "FILE or -: everything as JSON").written(),
       option("program", &O::program, "FOLDER: to write a program for stepsim replay to"),
       option("step", &O::step, "NUMBER: with --program, of the ProfilerStep"),
       option("transfers",
              &O::transfers,
              "PROFILE: with --program, whose transfer times stand in place of those recorded"),
       option("out", &O::out, "SAMPLES: samples file (JSONL), continued when it exists").written(),
       option("profile", &O::profile, "PROFILE or -: profile to write").written(),
       option("base", &O::base, "PROFILE: with --profile, the one to put all of this into"),
       option("run-record",
              &O::run_record,
              "FILE: the steps with their batches, as stepsim_recorder.py would have recorded "
              "them")
           .written(),
       option("dims",
              &O::dims,
              "samples,length|length,samples: what the first two dimensions of a batch are "
              "(default: as attention tells, else samples,length)"),
       option("nodes",
              &O::nodes,
              "NUMBER: nodes of the run, for --out, --profile and --transfers (default: 1)"),
       option("device", &O::device, "NAME: what the GPUs are, where the traces do not say")},
      ask_kineto);
}

}  // namespace stepsim
