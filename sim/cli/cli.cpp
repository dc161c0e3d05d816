#include "sim/cli/cli.h"

#include <array>
#include <cstdio>
#include <exception>

#include <fmt/core.h>

#include "costmodel/input_error.h"

namespace stepsim {

namespace {

constexpr std::array kCommands = {
    Command{"run", "predict the step time of one policy", run_command},
    Command{"compare", "all policies of a scenario side by side", compare_command},
    Command{"sweep", "step time over bucket caps, budgets, ranks or any key", sweep_command},
    Command{"blame", "what the step is spent on, and what would save most", blame_command},
    Command{"solve", "the value of a key that makes a measured step time", solve_command},
    Command{"plan", "write the batches of every step and rank", plan_command},
    Command{"buckets", "the gradient buckets DDP makes, initial and rebuilt", buckets_command},
    Command{"figures", "published figures against computed ones", figures_command},
    Command{"replay", "a recorded program under the simulator's rules", replay_command},
    Command{"validate", "predicted against measured", validate_command},
    Command{"trace", "a Chrome trace for Perfetto", trace_command},
    Command{"lengths", "what the sample lengths look like", lengths_command},
    Command{"policies", "the batching policies there are", policies_command},
    Command{"models", "the model presets there are", models_command},
    Command{"profiles", "the calibrated machines there are", profiles_command},
};

std::string overview() {
  std::string text =
      "stepsim: know the step time of a DDP batching policy and bucket size before running it\n\n"
      "usage: stepsim COMMAND [options]\n\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  }
  text +=
      "\nstepsim COMMAND --help says everything about a command.\n"
      "Start here:  stepsim compare scenarios/token_skew.toml\n"
      "Exit status: 0 done; 1 the answer is no; 2 bad input; 3 a fault of the machine.\n";
  return text;
}

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments[0] == "help") {
    std::fputs(overview().c_str(), stdout);
    return arguments.empty() ? kBadInput : kDone;
  }
  if (arguments[0] == "--version") {
    fmt::print("stepsim {}\n", STEPSIM_VERSION);
    return kDone;
  }
  for (const Command& command : kCommands) {
    if (arguments[0] == command.name) {
      return command.run({arguments.begin() + 1, arguments.end()});
    }
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.emplace_back(command.name);
  }
  throw InputError("stepsim: error: " + unknown_name("command", arguments[0], names));
}

}  // namespace

int run_stepsim(const std::vector<std::string>& arguments) {
  try {
    const int status = dispatch(arguments);
    if (std::fflush(stdout) != 0) {
      std::fputs("stepsim: error: cannot write to standard output\n", stderr);
      return kEnvironmentFault;
    }
    return status;
  } catch (const InputError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return kBadInput;
  } catch (const EnvironmentFault& error) {
    fmt::print(stderr, "stepsim: error: {}\n", error.what());
    return kEnvironmentFault;
  } catch (const std::exception& error) {
    fmt::print(stderr, "stepsim: internal error: {}\n", error.what());
    return kEnvironmentFault;
  }
}

}  // namespace stepsim
