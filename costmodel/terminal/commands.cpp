#include "costmodel/terminal/commands.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/help.h"
#include "costmodel/terminal/paint.h"
#include "costmodel/terminal/show.h"

namespace stepsim {

namespace {

std::string overview(const CommandSet& set) {
  std::size_t width = 0;
  for (const Command& command : set.commands) {
    width = std::max(width, std::string_view(command.name).size());
  }
  std::string text =
      fmt::format("usage: {} COMMAND [options]\n\n{}\n\ncommands:\n", set.name, set.purpose);
  for (const Command& command : set.commands) {
    text += fmt::format("  {:<{}}  {}\n", command.name, width, command.summary);
  }
  return text + fmt::format("\n{} COMMAND --help describes a command in full.\n\n{}",
                            set.name,
                            set.closing);
}

/// Writes one line for the set, then one for each command.
void print_help_json(const CommandSet& set) {
  Json commands = mapped(set.commands, [](const Command& command) -> Json {
    return {{"name", command.name}, {"summary", command.summary}};
  });
  const Json line = {{"command", set.name},
                     {"version", STEPSIM_VERSION},
                     {"purpose", set.purpose},
                     {"closing", set.closing},
                     {"commands", std::move(commands)}};
  std::fputs((line.dump() + "\n").c_str(), stdout);
  for (const Command& command : set.commands) {
    command.run({kHelpJson});
  }
}

bool asks_for_help(const std::string& argument) {
  return argument == "--help" || argument == "-h" || argument == "help";
}

/// Paints the first occurrence of `word` in a text.
std::string with_colour(std::string text,
                        const std::string& word,
                        Paint paint,
                        const Screen& screen) {
  if (const std::size_t at = text.find(word); at != std::string::npos) {
    text.replace(at, word.size(), painted(word, paint, screen));
  }
  return text;
}

}  // namespace

int run_commands(const CommandSet& set, const std::vector<std::string>& arguments) {
  const Screen screen = output_screen();
  if (arguments.empty() || (arguments.size() == 1 && asks_for_help(arguments[0]))) {
    std::fputs(printed(paragraphs(overview(set), screen), screen).c_str(), stdout);
    return arguments.empty() ? kBadInput : kDone;
  }
  if (arguments[0] == "--version") {
    fmt::print("{} {}\n", set.name, STEPSIM_VERSION);
    return kDone;
  }
  if (arguments[0] == kHelpJson) {
    print_help_json(set);
    return kDone;
  }
  const bool help = asks_for_help(arguments[0]);
  const std::string& name = arguments[help ? 1 : 0];
  std::vector<std::string> known;
  for (const Command& command : set.commands) {
    if (name == command.name) {
      return help ? command.run({"--help"}) : command.run({arguments.begin() + 1, arguments.end()});
    }
    known.emplace_back(command.name);
  }
  throw InputError(
      SourcePlace{set.name}, "{}; see: {} --help", unknown_name("command", name, known), set.name);
}

int run_program(const std::string& name, const std::function<int()>& work) {
  const auto say = [&](const std::string& message) {
    print_message(fmt::format("{}: {}", name, message));
  };
  try {
    const int status = work();
    if (std::fflush(stdout) != 0 ||
        std::ferror(stdout) != 0) {  // An earlier flush can have failed.
      say("error: cannot write to standard output");
      return kEnvironmentFault;
    }
    return status;
  } catch (const InputError& error) {
    error.has_place() ? print_message(error.what()) : say(std::string("error: ") + error.what());
    return kBadInput;
  } catch (const EnvironmentFault& error) {
    say(std::string("error: ") + error.what());
  } catch (const std::bad_alloc&) {
    say("error: this machine has too little memory for it");
  } catch (const std::exception& error) {
    say(std::string("internal error: ") + error.what());
  }
  return kEnvironmentFault;
}

void print_message(const std::string& message) {
  const Screen screen = screen_of(STDERR_FILENO);
  std::string text = with_colour(message, "error:", Paint::Bad, screen);
  text = with_colour(std::move(text), "warning:", Paint::Warning, screen);
  std::fputs((printed(text, screen) + "\n").c_str(), stderr);
}

Screen output_screen() {
  return screen_of(STDOUT_FILENO);
}

void print_report(const std::string& text, const Screen& screen) {
  std::fputs(shown(text, screen).c_str(), stdout);
}

}  // namespace stepsim
