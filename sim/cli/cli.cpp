#include "sim/cli/cli.h"

#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"

namespace stepsim {

namespace {

constexpr std::array kCommands = {
    Command{"advise", "from the records of a training to an answer", advise_command},
    Command{"run", "predict the step time of one policy", run_command},
    Command{"compare", "all policies of a scenario side by side", compare_command},
    Command{"sweep", "step time over bucket caps, budgets, ranks or any key", sweep_command},
    Command{"blame", "what the step is spent on, and what would save most", blame_command},
    Command{"solve", "the value of a key that makes a measured step time", solve_command},
    Command{"ladder", "the lengths to pad batches to, where new shapes cost", ladder_command},
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

const CommandSet kSet = {
    "stepsim",
    "Know the step time of a DDP batching policy and bucket size before running it.",
    "Start here: stepsim compare scenarios/token_skew.toml\n\n"
    "Exit status: 0 done; 1 the answer is no; 2 bad input; 3 a fault of the machine.\n\n"
    "On a terminal, NO_COLOR turns colour off and COLUMNS sets the width.\n",
    kCommands};

/// The command that prints a list; empty for Lookup::None.
std::string_view command_for(Lookup lookup) {
  switch (lookup) {
    case Lookup::None:
      return "";
    case Lookup::Policies:
      return "stepsim policies --all";
    case Lookup::Models:
      return "stepsim models";
    case Lookup::Profiles:
      return "stepsim profiles";
  }
  return "";
}

void print_error(const InputError& error) {
  print_message(std::string(error.has_place() ? "" : "stepsim: error: ") + error.what());
  if (const std::string_view command = command_for(error.lookup()); !command.empty()) {
    print_message(fmt::format("next: {}", command));
  }
}

}  // namespace

int run_stepsim(const std::vector<std::string>& arguments) {
  try {
    const int status = run_commands(kSet, arguments);
    if (std::fflush(stdout) != 0) {
      print_message("stepsim: error: cannot write to standard output");
      return kEnvironmentFault;
    }
    return status;
  } catch (const InputError& error) {
    print_error(error);
    return kBadInput;
  } catch (const EnvironmentFault& error) {
    print_message(std::string("stepsim: error: ") + error.what());
    return kEnvironmentFault;
  } catch (const std::exception& error) {
    print_message(std::string("stepsim: internal error: ") + error.what());
    return kEnvironmentFault;
  }
}

}  // namespace stepsim
