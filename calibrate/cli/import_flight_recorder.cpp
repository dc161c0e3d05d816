#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/cli/commands.h"
#include "calibrate/import/torch_records/flight_report.h"

namespace stepsim {
namespace {

struct FlightOptions {
  std::vector<std::string> files;
};

constexpr const char* kImportFlightUsage =
    "usage: stepcal import flight-recorder DUMP… [options]\n\n"
    "How long are a running job's steps, what do they reduce, and which rank comes last? Reads "
    "the\n"
    "dumps of PyTorch's Flight Recorder, one a rank (rank1 in a file's name says the rank). It is\n"
    "on by itself, also with gloo; with NCCL TORCH_FR_BUFFER_SIZE=2000 turns it on. Entries tell\n"
    "when the host launched a collective and how large it was, not how long it took. No GPU is\n"
    "needed.\n\n"
    "Dump, on every rank:\n"
    "  text = torch._C._distributed_c10d._dump_fr_trace_json()\n"
    "  open(f\"dump_rank{rank}.json\", \"wb\").write(\n"
    "      text if isinstance(text, bytes) else text.encode())\n\n"
    "example:\n"
    "  stepcal import flight-recorder dump_rank*.json\n";

Answer ask_flight(const CommandRequest& request, const FlightOptions& options) {
  if (options.files.empty()) {
    request.fail("no dump given");
  }
  const auto dumps =
      std::make_shared<const std::vector<FlightDump>>(read_flight_dumps(options.files));
  Answer answer;
  answer.text = [dumps](const Screen& screen) { return flight_report(*dumps, screen); };
  answer.json = [dumps] { return flight_json(*dumps); };
  return answer;
}

}  // namespace

StepcalCommand import_flight_recorder_command() {
  return question_row(
      "import flight-recorder",
      "dumps of PyTorch's Flight Recorder",
      kImportFlightUsage,
      {option("files", &FlightOptions::files, "DUMP… or -: dumps, one a rank").positional(-1),
       option("json", &Outputs::json, "FILE or -: the same as JSON").written()},
      ask_flight);
}

}  // namespace stepsim
