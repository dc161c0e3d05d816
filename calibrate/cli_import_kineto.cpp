#include "calibrate/cli_import_kineto.h"

#include <cstdint>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/cli.h"
#include "calibrate/cli_options.h"
#include "calibrate/import/kineto_match.h"
#include "calibrate/import/kineto_program.h"
#include "calibrate/import/kineto_report.h"
#include "calibrate/import/kineto_trace.h"
#include "costmodel/input_error.h"
#include "costmodel/json_file.h"

namespace stepsim {
namespace {

namespace po = boost::program_options;

constexpr const char* kUsage =
    "usage: stepcal import kineto TRACE… [--program FOLDER [--step N]] [--json FILE|-]\n\n"
    "Reads traces of PyTorch's profiler (.json or .json.gz, every version), one for each rank of "
    "a\n"
    "run, and says what is in them: steps, collectives with their sizes, DDP's buckets, compute "
    "by\n"
    "class. With the traces of all ranks it tells how long each collective really took: a "
    "recorded\n"
    "NCCL kernel also holds the wait for the last rank. --program writes one step, the last whole "
    "one\n"
    "or step N, as stepsim replay plays it. No GPU is needed.\n"
    "Record with torch.profiler.profile(record_shapes=True) and call step() once a step.\n\n"
    "examples:\n"
    "  stepcal import kineto rank0.pt.trace.json.gz\n"
    "  stepcal import kineto rank*.pt.trace.json.gz --json trace.json\n"
    "  stepcal import kineto rank*.pt.trace.json.gz --program step && stepsim replay step\n";

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
  for (const std::string& note : program.notes) {
    fmt::print("note: {}\n", note);
  }
  fmt::print("next: stepsim replay {}\n", shell_word(folder));
}

}  // namespace

int import_kineto_command(const std::vector<std::string>& arguments) {
  OptionParser parser("import kineto", kUsage);
  parser.add()(
      "traces", po::value<std::vector<std::string>>(), "one a rank; - reads standard input")(
      "json", po::value<std::string>(), "everything as JSON, to a file or -")(
      "program", po::value<std::string>(), "folder to write a program for stepsim replay to")(
      "step", po::value<std::int64_t>(), "with --program: number of the ProfilerStep");
  parser.positional("traces", -1);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  if (parser.has("step") && !parser.has("program")) {
    parser.fail("--step goes with --program");
  }
  const std::vector<std::string> files = parser.list("traces");
  if (files.empty()) {
    parser.fail("no trace given; see: stepcal import kineto --help");
  }
  std::vector<KinetoTrace> traces;
  for (const std::string& file : files) {
    traces.push_back(read_kineto(file));
  }
  const KinetoMatches matches = match_collectives(traces);
  const std::string json = parser.has("json") ? parser.get<std::string>("json") : "";
  if (!json.empty()) {
    write_text_atomically(
        json,
        kineto_json(traces, matches).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  std::optional<KinetoProgram> program;
  if (parser.has("program")) {
    program = make_kineto_program(
        traces,
        matches,
        parser.has("step") ? std::optional(parser.get<std::int64_t>("step")) : std::nullopt);
    write_kineto_program(parser.get<std::string>("program"), *program);
  }
  if (json != "-") {
    std::fputs(kineto_report(traces, matches).c_str(), stdout);
    if (program) {
      say_program(parser.get<std::string>("program"), *program);
    }
    if (json.empty() && !program) {
      std::fputs("next: --json trace.json writes every collective and step by itself\n", stdout);
    }
  }
  return kDone;
}

}  // namespace stepsim
