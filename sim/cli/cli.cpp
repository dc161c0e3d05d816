#include "sim/cli/cli.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/terminal/commands.h"
#include "costmodel/terminal/given_option.h"
#include "sim/cli/questions.h"
#include "sim/points/point_runner.h"

namespace stepsim {

namespace {

/// Raises InputError: a word is an option that only other commands have. Which these are helps more
/// than the options of this one.
void refuse_options_of_others(const Question& question, const std::vector<std::string>& words) {
  const auto has = [](const Question& one, const std::string& name) {
    return std::ranges::find(one.options, name, &OptionRow::long_name) != one.options.end();
  };
  constexpr std::string_view kDashes = "--";
  for (const std::string& word : words) {
    const std::string name =
        word.starts_with(kDashes) ? word.substr(2, word.find('=') - 2) : std::string();
    if (name.empty() || has(question, name)) {
      continue;
    }
    std::vector<std::string> others;
    for (const Question& other : questions()) {
      if (has(other, name)) {
        others.push_back(other.name);
      }
    }
    if (!others.empty()) {
      fail_command("stepsim " + question.name,
                   fmt::format("--{} is an option of {}{}, not of this command",
                               name,
                               others.size() > 1 ? "the commands " : "stepsim ",
                               fmt::join(others, ", ")));
    }
  }
}

/// Runs the question that the arguments name, as a command of the program.
int run_one(const std::vector<std::string>& arguments, const FitRecords& fit_records) {
  const std::vector<Command> commands = mapped(questions(), [&](const Question& question) {
    return Command{question.name.c_str(),
                   question.summary.c_str(),
                   [&](const std::vector<std::string>& words) {
                     refuse_options_of_others(question, words);
                     Request request;
                     request.fit_records = fit_records;
                     return write_answer("stepsim", ask(question, words, std::move(request)));
                   }};
  });
  const CommandSet set = {
      "stepsim",
      "Know the step time of a DDP batching policy and bucket size before running it.",
      "Start here:\n"
      "  stepsim compare scenarios/token_skew.toml\n"
      "  stepsim help exposed      explains a word of the output\n\n"
      "Exit status: 0 done; 1 the answer is no; 2 bad input; 3 a fault of the machine.\n\n"
      "On a terminal, NO_COLOR turns colour off and COLUMNS sets the width.\n",
      commands};
  return run_commands(set, arguments);
}

/// Help with what is no command is about a word of the output.
std::vector<std::string> with_glossary(std::vector<std::string> arguments) {
  constexpr std::string_view kHelp = "help";
  if (arguments.size() < 2 || arguments.front() != kHelp ||
      std::ranges::find(questions(), arguments[1], &Question::name) != questions().end()) {
    return arguments;
  }
  arguments.front() = "glossary";
  return arguments;
}

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

/// The command whose points several processes would compute together; null: it is another one, or
/// each process is to compute a shard of its own.
const Question* question_with_points(const std::vector<std::string>& arguments) {
  const auto asks_for_shard = [](const std::string& argument) {
    return argument.starts_with("--shard");
  };
  for (const Question& question : questions()) {
    if (question.points != SharedPoints::None && !arguments.empty() &&
        arguments.front() == question.name && std::ranges::none_of(arguments, asks_for_shard)) {
      return &question;
    }
  }
  return nullptr;
}

/// Lets the peers go when the command is over, however it ends.
class Dismissal {
 public:
  explicit Dismissal(Peers& peers) : peers_(peers) {}
  ~Dismissal() { dismiss_peers(peers_); }
  Dismissal(const Dismissal&) = delete;
  Dismissal& operator=(const Dismissal&) = delete;

 private:
  Peers& peers_;
};

/// Asks and writes on process 0, with the help of the others. These say nothing: process 0 tells
/// what is wrong, and its status is the command's, as mpirun returns the first that is not 0.
int ask_together(const Question& question,
                 Peers& peers,
                 const std::vector<std::string>& arguments) {
  const std::vector<std::string> words = {arguments.begin() + 1, arguments.end()};
  Request request;
  request.peers = &peers;
  if (peers.own() == 0) {
    const Dismissal dismissal(peers);
    Answer answer = ask(question, words, request);
    answer.outputs.as_file = true;
    return write_answer("stepsim", answer);
  }
  try {
    (void)ask(question, words, request);
    wait_until_dismissed(peers, "");
  } catch (const PointsComputed&) {
    return kDone;
  } catch (const std::exception& error) {
    wait_until_dismissed(peers, error.what());
  }
  return kDone;
}

int run_command_line(const std::vector<std::string>& arguments,
                     JoinPeers join_peers,
                     const FitRecords& fit_records) {
  if (const Question* const question = question_with_points(arguments)) {
    if (const std::unique_ptr<Peers> peers = join_peers()) {
      return ask_together(*question, *peers, arguments);
    }
  }
  return run_one(with_glossary(arguments), fit_records);
}

/// Says which command lists what an unknown name could have been.
void print_lookup(const InputError& error) {
  if (const std::string_view command = command_for(error.lookup()); !command.empty()) {
    print_message(fmt::format("next: {}", command));
  }
}

}  // namespace

int run_stepsim(const std::vector<std::string>& arguments,
                JoinPeers join_peers,
                const FitRecords& fit_records) {
  std::function<void()> last = [] {};
  const int status = run_program("stepsim", [&] {
    try {
      return run_command_line(arguments, join_peers, fit_records);
    } catch (const InputError& error) {
      last = [error] { print_lookup(error); };
      throw;
    }
  });
  last();
  return status;
}

}  // namespace stepsim
