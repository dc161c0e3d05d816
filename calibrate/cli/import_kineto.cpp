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
#include "calibrate/import/kineto/kineto_program.h"
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
    "--profile take the collectives whose ranks all have a trace. No GPU is needed.\n\n"
    "Record with torch.profiler.profile(record_shapes=True) and call step() once a step.\n\n"
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

/// Samples file and profile; what they hold goes to standard output when `say`.
void write_samples(const OptionParser& parser,
                   std::span<const KinetoTrace> traces,
                   const KinetoMatches& matches,
                   bool say) {
  const auto nodes = parser.maybe<int>("nodes");
  const KinetoSamples samples = kineto_samples(traces, matches, nodes);
  const ImportOrigin origin = {parser.text("device"), parser.command_line(), utc_now()};
  const std::string header = import_header(samples.device, origin);
  if (say) {
    fmt::print("\ncollective samples: {}\n", fmt::join(samples.groups, "; "));
    for (const std::string& one : samples.left_out) {
      fmt::print("left out: {}\n", one);
    }
    fmt::print(
        "note: compute goes into no profile: a trace does not say for which batch it ran; a "
        "scenario takes it as [times], see above\n");
  }
  if (parser.has("out")) {
    const std::string out = parser.text("out");
    write_import_lines(out, header, samples.lines);
    if (say) {
      fmt::print(
          "wrote {}\nnext: stepcal fit {} --out PROFILE.json\n", printable(out), shell_word(out));
    }
  }
  if (parser.has("profile")) {
    std::fflush(stdout);
    const std::vector<std::string> files = parser.list("traces");
    write_imported_profile(
        parser, samples_of_lines(header, samples.lines), fmt::format("{}", fmt::join(files, ", ")));
  }
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

}  // namespace

int import_kineto_command(const std::vector<std::string>& arguments) {
  OptionParser parser("import kineto", kImportKinetoUsage);
  parser.add(
      {{"traces", option_value<std::vector<std::string>>(), "TRACE… or -: traces, one a rank"},
       {"json", option_text(), "FILE or -: everything as JSON"},
       {"program", option_text(), "FOLDER: to write a program for stepsim replay to"},
       {"step", option_value<std::int64_t>(), "NUMBER: with --program, of the ProfilerStep"},
       {"transfers",
        option_text(),
        "PROFILE: with --program, whose transfer times stand in place of those recorded"},
       {"out", option_text(), "SAMPLES: samples file (JSONL), continued when it exists"},
       {"profile", option_text(), "PROFILE or -: profile to write"},
       {"base", option_text(), "PROFILE: with --profile, the one to put the collectives into"},
       {"nodes",
        option_value<int>(),
        "NUMBER: nodes of the run, for --out, --profile and --transfers (default: 1)"},
       {"device", option_text(), "NAME: what the GPUs are, where the traces do not say"}});
  parser.positional("traces", -1);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  check_options(parser);
  const std::vector<std::string> files = parser.list("traces");
  if (files.empty()) {
    parser.fail("no trace given");
  }
  std::vector<KinetoTrace> traces;
  Progress progress(fmt::format("reading {} trace{}", files.size(), files.size() > 1 ? "s" : ""));
  for (const std::string& file : files) {
    const auto before = static_cast<double>(traces.size());
    traces.push_back(read_kineto(file, [&](double share) {
      progress.at((before + share) / static_cast<double>(files.size()));
    }));
  }
  progress.done();
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
  const bool say = json != "-" && !(parser.has("profile") && parser.text("profile") == "-");
  if (say) {
    print_report(kineto_report(traces, matches, output_screen()));
    if (program) {
      say_program(parser.text("program"), *program);
    }
    if (json.empty() && !program && !writes) {
      print_report("next: --json trace.json writes every collective and step by itself\n");
    }
  }
  if (writes) {
    write_samples(parser, traces, matches, say);
  }
  return kDone;
}

}  // namespace stepsim
