#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/cli/commands.h"
#include "calibrate/import/torch_records/ddp_logging.h"

namespace stepsim {
namespace {

struct LoggingOptions {
  std::vector<std::string> files;
};

constexpr const char* kImportLoggingUsage =
    "usage: stepcal import ddp-logging FILE… [options]\n\n"
    "What does DistributedDataParallel say of its own steps? Reads the dictionary of\n"
    "ddp._get_ddp_logging_data(), one file a rank: forward, backward, communication and what of "
    "it\n"
    "the backward hides, gradient buckets and settings. No GPU is needed.\n\n"
    "Write it in the training, after some steps:\n"
    "  json.dump(ddp._get_ddp_logging_data(), open(f\"ddp_rank{rank}.json\", \"w\"))\n\n"
    "example:\n"
    "  stepcal import ddp-logging ddp_rank*.json\n";

Answer ask_logging(const CommandRequest& request, const LoggingOptions& options) {
  if (options.files.empty()) {
    request.fail("no file given");
  }
  const auto ranks =
      std::make_shared<const std::vector<DdpLogging>>(read_ddp_logging(options.files));
  Answer answer;
  answer.text = [ranks](const Screen& screen) { return ddp_logging_report(*ranks, screen); };
  answer.json = [ranks] { return ddp_logging_json(*ranks); };
  return answer;
}

}  // namespace

StepcalCommand import_ddp_logging_command() {
  return question_row(
      "import ddp-logging",
      "what DDP logs of its own steps",
      kImportLoggingUsage,
      {option("files", &LoggingOptions::files, "FILE… or -: files, one a rank").positional(-1),
       option("json", &Outputs::json, "FILE or -: the same as JSON").written()},
      ask_logging);
}

}  // namespace stepsim
