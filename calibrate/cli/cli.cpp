#include "calibrate/cli/cli.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include <unistd.h>

#include "calibrate/ranks/launched_group.h"
#include "calibrate/ranks/rank_processes.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

const std::array<Command, 7> kCommands = {{
    {"calibrate", "measure GPUs and fit a profile", calibrate_command},
    {"measure",
     "measure only, into a samples file that survives a kill: GPUs, or gloo's collectives",
     measure_command},
    {"fit", "make a profile of a samples file", fit_command},
    {"import",
     "use measurements made elsewhere: logs of nccl-tests, profiler traces",
     import_command},
    {"grid", "the batch shapes to calibrate your own model on", grid_command},
    {"check", "does a profile still fit this machine?", check_command},
    {"devices", "what there is to measure on", devices_command},
}};

const CommandSet kSet = {
    "stepcal",
    "Measure what training steps cost on this machine.",
    "Start here:\n"
    "  stepcal grid plans/*.jsonl --out shapes.json\n"
    "  python3 -m stepsim.torch.measure shapes.json --out samples.jsonl\n"
    "  stepcal fit samples.jsonl --out here.json\n\n"
    "Exit status: 0 done; 1 the answer is no; 2 bad input; 3 a fault of the machine; 130 "
    "Ctrl-C.\n\n"
    "On a terminal, NO_COLOR turns colour off and COLUMNS sets the width.\n",
    kCommands};

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

int run_stepcal(const std::vector<std::string>& arguments) {
  std::signal(SIGINT, leave);
  std::signal(SIGTERM, leave);
  try {
    if (!arguments.empty() && arguments.front() == "live") {
      throw InputError(
          "stepcal trains nothing: PyTorch itself does, by "
          "python3 -m stepsim.torch.live PLANS... --out-dir live");
    }
    const int status = run_commands(kSet, arguments);
    if (std::fflush(stdout) != 0) {
      print_message("stepcal: error: cannot write to standard output");
      return kEnvironmentFault;
    }
    return status;
  } catch (const InputError& error) {
    print_message(std::string(error.has_place() ? "" : "stepcal: error: ") + error.what());
    return kBadInput;
  } catch (const EnvironmentFault& error) {
    print_message(std::string("stepcal: error: ") + error.what());
    return kEnvironmentFault;
  } catch (const StoppedByRank0&) {
    // Rank 0 tells why, and its status is the run's: mpirun returns the first one that is not 0.
    return kDone;
  } catch (const Interrupted&) {
    print_message("stepcal: interrupted");
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    print_message("stepcal: error: this machine has too little memory for it");
    return kEnvironmentFault;
  } catch (const std::exception& error) {
    print_message(std::string("stepcal: internal error: ") + error.what());
    return kEnvironmentFault;
  }
}

}  // namespace stepsim
