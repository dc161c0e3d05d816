#include "calibrate/cli.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include <fmt/core.h>
#include <unistd.h>

#include "calibrate/launched_group.h"
#include "calibrate/rank_processes.h"
#include "costmodel/input_error.h"

namespace stepsim {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& arguments);
};

constexpr std::array<Command, 7> kCommands = {{
    {"calibrate", "measure this machine and fit a profile: the usual way", calibrate_command},
    {"measure", "measure only, into a samples file that survives a kill", measure_command},
    {"fit", "make a profile of a samples file", fit_command},
    {"import",
     "use measurements made elsewhere: logs of nccl-tests, profiler traces",
     import_command},
    {"check", "does a profile still fit this machine?", check_command},
    {"live", "train the batches of plans for real and record every step", live_command},
    {"devices", "what there is to measure on", devices_command},
}};

std::string overview() {
  std::string text =
      "stepcal: measure what training steps cost on this machine\n\n"
      "usage: stepcal COMMAND [options]\n\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  }
  text +=
      "\nstepcal COMMAND --help says everything about a command.\n"
      "Start here:  stepcal calibrate --model tiny-classifier --max-length 256 --max-tokens 4096 "
      "--out here.json\n"
      "Exit status: 0 done; 1 the answer is no; 2 bad input; 3 a fault of the machine; 130 "
      "Ctrl-C.\n";
  return text;
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

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments[0] == "help") {
    std::fputs(overview().c_str(), stdout);
    return arguments.empty() ? kBadInput : kDone;
  }
  if (arguments[0] == "--version") {
    fmt::print("stepcal {}\n", STEPSIM_VERSION);
    return kDone;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (arguments[0] == command.name) {
      return command.run({arguments.begin() + 1, arguments.end()});
    }
    names.emplace_back(command.name);
  }
  throw InputError("stepcal: error: " + unknown_name("command", printable(arguments[0]), names));
}

}  // namespace

int run_stepcal(const std::vector<std::string>& arguments) {
  std::signal(SIGINT, leave);
  std::signal(SIGTERM, leave);
  try {
    const int status = dispatch(arguments);
    if (std::fflush(stdout) != 0) {
      std::fputs("stepcal: error: cannot write to standard output\n", stderr);
      return kEnvironmentFault;
    }
    return status;
  } catch (const InputError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return kBadInput;
  } catch (const EnvironmentFault& error) {
    fmt::print(stderr, "stepcal: error: {}\n", error.what());
    return kEnvironmentFault;
  } catch (const StoppedByRank0&) {
    return kEnvironmentFault;
  } catch (const Interrupted&) {
    fmt::print(stderr, "stepcal: interrupted\n");
    return kInterrupted;
  } catch (const std::exception& error) {
    fmt::print(stderr, "stepcal: internal error: {}\n", error.what());
    return kEnvironmentFault;
  }
}

}  // namespace stepsim
