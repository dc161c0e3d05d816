#include "calibrate/cli_import_kineto.h"

#include <cstdio>

#include "calibrate/cli.h"
#include "calibrate/cli_options.h"
#include "calibrate/import/kineto_match.h"
#include "calibrate/import/kineto_report.h"
#include "calibrate/import/kineto_trace.h"
#include "costmodel/json_file.h"

namespace stepsim {
namespace {

namespace po = boost::program_options;

constexpr const char* kUsage =
    "usage: stepcal import kineto TRACE… [--json FILE|-]\n\n"
    "Reads traces of PyTorch's profiler (.json or .json.gz, every version), one for each rank of "
    "a\n"
    "run, and says what is in them: steps, collectives with their sizes, DDP's buckets, compute "
    "by\n"
    "class. With the traces of all ranks it tells how long each collective really took: a "
    "recorded\n"
    "NCCL kernel also holds the wait for the last rank. No GPU is needed.\n"
    "Record with torch.profiler.profile(record_shapes=True) and call step() once a step.\n\n"
    "examples:\n"
    "  stepcal import kineto rank0.pt.trace.json.gz\n"
    "  stepcal import kineto rank*.pt.trace.json.gz --json trace.json\n";

}  // namespace

int import_kineto_command(const std::vector<std::string>& arguments) {
  OptionParser parser("import kineto", kUsage);
  parser.add()(
      "traces", po::value<std::vector<std::string>>(), "one a rank; - reads standard input")(
      "json", po::value<std::string>(), "everything as JSON, to a file or -");
  parser.positional("traces", -1);
  if (!parser.parse(arguments)) {
    return kDone;
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
  if (json != "-") {
    std::fputs(kineto_report(traces, matches).c_str(), stdout);
    if (json.empty()) {
      std::fputs("next: --json trace.json writes every collective and step by itself\n", stdout);
    }
  }
  return kDone;
}

}  // namespace stepsim
