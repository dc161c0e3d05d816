#include "calibrate/cli/cli.h"

#include <csignal>
#include <cstring>
#include <string_view>

#include <unistd.h>

#include "calibrate/cli/commands.h"
#include "calibrate/ranks/launched_group.h"
#include "calibrate/ranks/rank_processes.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// What `stepcal import` says of its own: the commands in it are those whose names begin with it.
constexpr const char* kImport = "import";
constexpr const char* kImportSummary =
    "use measurements made elsewhere: logs of nccl-tests, profiler traces";
constexpr const char* kImportPurpose = "Use measurements made elsewhere. No GPU is needed.";
constexpr const char* kImportClosing =
    "examples:\n"
    "  stepcal import nccl-tests all_reduce.log --profile mine.json\n"
    "  stepcal import kineto rank*.pt.trace.json.gz\n"
    "  stepcal import run-record run.jsonl --plan plan.jsonl --profile mine.json\n";

constexpr const char* kPurpose = "Measure what training steps cost on this machine.";
constexpr const char* kClosing =
    "Start here:\n"
    "  stepcal grid plans/*.jsonl --out shapes.json\n"
    "  python3 -m stepsim.torch.measure shapes.json --out samples.jsonl\n"
    "  stepcal fit samples.jsonl --out here.json\n\n"
    "Exit status: 0 done; 1 the answer is no; 2 bad input; 3 a fault of the machine; 130 "
    "Ctrl-C.\n\n"
    "On a terminal, NO_COLOR turns colour off and COLUMNS sets the width.\n";

int run_row(const StepcalCommand& row, const std::vector<std::string>& words) {
  CommandRequest request;
  request.command = "stepcal " + row.name;
  OptionStructs structs{row.make_own(), {}};
  structs.share(request.outputs);
  if (!read_words(words, row.usage, row.options, structs, request)) {
    return kDone;
  }
  Answer answer = row.ask(request, structs.own);
  answer.outputs = request.outputs;
  return write_answer("stepcal", answer);
}

/// Runs a row as the command of this name.
Command command_of(const StepcalCommand& row, const char* name) {
  return {name, row.summary.c_str(), [&row](const std::vector<std::string>& words) {
            return run_row(row, words);
          }};
}

/// The name of a command inside of `import`; null: it is in the program itself.
const char* name_in_import(const StepcalCommand& row) {
  const std::string_view group = kImport;
  return row.name.starts_with(std::string(group) + " ") ? row.name.c_str() + group.size() + 1
                                                        : nullptr;
}

int run_import(const std::vector<std::string>& arguments) {
  std::vector<Command> commands;
  for (const StepcalCommand& row : stepcal_commands()) {
    if (const char* const name = name_in_import(row)) {
      commands.push_back(command_of(row, name));
    }
  }
  return run_commands({"stepcal import", kImportPurpose, kImportClosing, commands}, arguments);
}

/// Ctrl-C while no ranks run (run_ranks() has its own way): everything measured is in the file
/// already, so that leaving at once loses nothing.
void leave(int /*signal*/) {
  const char* text = "\nstepcal: interrupted\n";
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) {
    // Nowhere to say it.
  }
  ::_exit(kInterrupted);
}

}  // namespace

void require_given(const CommandRequest& request,
                   const std::string& value,
                   const std::string& what) {
  if (value.empty()) {
    request.fail("no " + what + " given");
  }
}

int run_stepcal_command(const std::vector<std::string>& arguments) {
  std::vector<Command> commands;
  for (const StepcalCommand& row : stepcal_commands()) {
    if (name_in_import(row) == nullptr) {
      commands.push_back(command_of(row, row.name.c_str()));
    } else if (std::string_view(commands.back().name) != kImport) {
      commands.push_back({kImport, kImportSummary, run_import});
    }
  }
  return run_commands({"stepcal", kPurpose, kClosing, commands}, arguments);
}

int run_stepcal(const std::vector<std::string>& arguments) {
  std::signal(SIGINT, leave);
  std::signal(SIGTERM, leave);
  return run_program("stepcal", [&] {
    if (!arguments.empty() && arguments.front() == "live") {
      throw InputError(
          "stepcal trains nothing: PyTorch itself does, by "
          "python3 -m stepsim.torch.live PLANS... --out-dir live");
    }
    try {
      return run_stepcal_command(arguments);
    } catch (const StoppedByRank0&) {
      // Rank 0 tells why, and its status is the run's: mpirun returns the first one that is not 0.
      return kDone;
    } catch (const Interrupted&) {
      print_message("stepcal: interrupted");
      return kInterrupted;
    }
  });
}

}  // namespace stepsim
