#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/cli.h"
#include "calibrate/cli/import_profile.h"
#include "calibrate/cli/options.h"
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
    "Record with torch.profiler.profile(record_shapes=True) and call step() once a step, ten "
    "steps\n"
    "or more whose batches differ.\n\n"
    "examples:\n"
    "  stepcal import kineto rank0.pt.trace.json.gz\n"
    "  stepcal import kineto rank*.pt.trace.json.gz --json trace.json\n"
    "  stepcal import kineto rank*.pt.trace.json.gz --program step && stepsim replay step\n"
    "  stepcal import kineto rank*.pt.trace.json.gz --base PROFILE.json --profile mine.json\n";

KinetoProgram make_program(const OptionParser& parser,
                           std::span<const KinetoTrace> traces,
                           const KinetoMatches& matches) {
  const auto step = parser.maybe<std::int64_t>("step");
  KinetoProgram program = make_kineto_program(traces, matches, step);
  if (parser.has("transfers")) {
    const int nodes = parser.maybe<int>("nodes").value_or(1);
    price_transfers(read_profile(parser.text("transfers")), nodes, &program);
  }
  return program;
}

void say_program(const std::string& folder, const KinetoProgram& program) {
  std::vector<std::string> ranks;
  std::size_t rows = 0;
  for (const KinetoProgramRank& rank : program.ranks) {
    ranks.push_back(std::to_string(rank.rank));
    rows += rank.rows.size();
  }
  fmt::print("\nwrote {}: step {} of rank {} (in the program from 0 on), {} rows, {} collectives\n",
             printable(folder),
             program.step,
             fmt::join(ranks, ", "),
             rows,
             program.collectives.size());
  const auto bounds =
      std::ranges::count_if(program.collectives, [](const auto& one) { return one.upper_bound; });
  if (bounds > 0) {
    fmt::print(
        "note: {} of {} transfer times are upper bounds, because traces of other ranks are "
        "missing: the replay ends these collectives as recorded, but says nothing of another "
        "link\n",
        bounds,
        program.collectives.size());
  }
  for (const std::string& note : program.notes) {
    fmt::print("note: {}\n", note);
  }
  print_report(fmt::format("next: stepsim replay {}\n", shell_word(folder)));
}

void say_taken(const KinetoTaken& taken, std::span<const KinetoTrace> traces) {
  fmt::print("\n");
  if (!taken.samples.groups.empty()) {
    fmt::print("collective samples: {}\n", fmt::join(taken.samples.groups, "; "));
  }
  for (const std::string& one : taken.samples.left_out) {
    fmt::print("left out: {}\n", one);
  }
  if (const std::string why = why_no_steps(taken.steps); !why.empty()) {
    const bool has_times =
        std::ranges::any_of(traces, [](const KinetoTrace& trace) { return !trace.ops.empty(); });
    fmt::print("note: compute goes into no profile: {}{}\n",
               why,
               has_times ? "; a scenario takes it as [times], see above" : "");
  }
}

/// Writes samples file and profile; what they hold goes to standard output when `say`.
void write_taken(const OptionParser& parser,
                 std::span<const KinetoTrace> traces,
                 const KinetoMatches& matches,
                 KinetoRecord steps,
                 bool say) {
  const KinetoTaken taken = {kineto_samples(traces, matches, parser.maybe<int>("nodes")),
                             std::move(steps)};
  const std::string why = why_no_steps(taken.steps);
  if (parser.has("out") || !why.empty()) {
    require_samples(taken.samples, traces, why);
  }
  const ImportOrigin origin = {parser.text("device"), parser.command_line(), utc_now()};
  const Json header = import_header(taken.samples.device, origin);
  if (say) {
    say_taken(taken, traces);
  }
  if (parser.has("out")) {
    const std::string out = parser.text("out");
    write_imports(out, header, taken.samples.collectives);
    if (say) {
      fmt::print(
          "wrote {}\nnext: stepcal fit {} --out PROFILE.json\n", printable(out), shell_word(out));
    }
  }
  if (parser.has("profile")) {
    std::fflush(stdout);
    write_imported(parser.text("profile"),
                   kineto_profile(taken, parser.list("traces"), header, profile_request(parser)));
  }
}

/// Writes the steps as a run record.
void write_kineto_record(const OptionParser& parser, const KinetoRecord& steps, bool say) {
  if (!steps.record) {
    throw InputError(SourcePlace{parser.list("traces").front()},
                     "no run record can be made: " + steps.problem);
  }
  const std::string out = parser.text("run-record");
  write_run_record(out, *steps.record);
  if (!say) {
    return;
  }
  std::string text = "\n";
  for (const std::string& note : steps.notes) {
    text += "note: " + note + "\n";
  }
  for (const std::string& warning : steps.warnings) {
    text += "warning: " + warning + "\n";
  }
  print_report(text + fmt::format("wrote {}: {} steps of {} ranks\nnext: stepcal import run-record "
                                  "{} --profile mine.json\n",
                                  printable(out),
                                  steps.record->steps.back().step + 1,
                                  parser.list("traces").size(),
                                  shell_word(out)));
}

/// Reads --dims: whether the length comes first.
std::optional<bool> length_first(const OptionParser& parser) {
  if (!parser.has("dims")) {
    return std::nullopt;
  }
  const std::string dims = parser.text("dims");
  if (dims != "samples,length" && dims != "length,samples") {
    parser.fail("--dims: expected samples,length or length,samples");
  }
  return dims == "length,samples";
}

void check_options(const OptionParser& parser) {
  for (const auto& [option, with] : {std::pair("step", "program"),
                                     std::pair("transfers", "program"),
                                     std::pair("base", "profile")}) {
    if (parser.has(option) && !parser.has(with)) {
      parser.fail(fmt::format("--{} goes with --{}", option, with));
    }
  }
  if (parser.has("nodes") && parser.get<int>("nodes") < 1) {
    parser.fail("--nodes: at least 1");
  }
}

void add_kineto_options(OptionParser* parser) {
  parser->add(
      {{"traces", option_value<std::vector<std::string>>(), "TRACE… or -: traces, one a rank"},
       {"json", option_text(), "FILE or -: everything as JSON", true},
       {"program", option_text(), "FOLDER: to write a program for stepsim replay to"},
       {"step", option_value<std::int64_t>(), "NUMBER: with --program, of the ProfilerStep"},
       {"transfers",
        option_text(),
        "PROFILE: with --program, whose transfer times stand in place of those recorded"},
       {"out", option_text(), "SAMPLES: samples file (JSONL), continued when it exists", true},
       {"profile", option_text(), "PROFILE or -: profile to write", true},
       {"base", option_text(), "PROFILE: with --profile, the one to put all of this into"},
       {"run-record",
        option_text(),
        "FILE: the steps with their batches, as stepsim_recorder.py would have recorded them",
        true},
       {"dims",
        option_text(),
        "samples,length|length,samples: what the first two dimensions of a batch are (default: as "
        "attention tells, else samples,length)"},
       {"nodes",
        option_value<int>(),
        "NUMBER: nodes of the run, for --out, --profile and --transfers (default: 1)"},
       {"device", option_text(), "NAME: what the GPUs are, where the traces do not say"}});
  parser->positional("traces", -1);
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

}  // namespace

int import_kineto_command(const std::vector<std::string>& arguments) {
  OptionParser parser("import kineto", kImportKinetoUsage);
  add_kineto_options(&parser);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  check_options(parser);
  const std::vector<std::string> files = parser.list("traces");
  if (files.empty()) {
    parser.fail("no trace given");
  }
  const std::vector<KinetoTrace> traces = read_traces(files);
  const KinetoMatches matches = match_collectives(traces);
  const std::string json = parser.text("json");
  if (!json.empty()) {
    write_text_atomically(
        json,
        kineto_json(traces, matches).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  std::optional<KinetoProgram> program;
  if (parser.has("program")) {
    program = make_program(parser, traces, matches);
    write_kineto_program(parser.text("program"), *program);
  }
  const bool writes = parser.has("out") || parser.has("profile");
  KinetoRecord steps = kineto_record(traces, matches, length_first(parser), parser.text("device"));
  const bool say = json != "-" && !(parser.has("profile") && parser.text("profile") == "-");
  if (say) {
    print_report(kineto_report(traces, matches, output_screen()));
    if (program) {
      say_program(parser.text("program"), *program);
    }
    if (json.empty() && !program && !writes && !parser.has("run-record")) {
      print_report("next: --json trace.json writes every collective and step by itself\n");
    }
  }
  if (parser.has("run-record")) {
    write_kineto_record(parser, steps, say);
  }
  if (writes) {
    write_taken(parser, traces, matches, std::move(steps), say);
  }
  return kDone;
}

}  // namespace stepsim
