#include "costmodel/terminal/command_parser.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <unistd.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/shell_word.h"

namespace stepsim {

namespace po = boost::program_options;

namespace {

/// "arg (=25 MiB)" as boost writes a default value.
std::string default_of(const po::option_description& option) {
  const std::string text = option.semantic()->name();
  const std::size_t start = text.find("(=");
  return start == std::string::npos ? "" : text.substr(start + 2, text.size() - start - 3);
}

}  // namespace

CommandParser::CommandParser(std::string program, std::string command, std::string usage)
    : name_(std::move(program) + " " + std::move(command)), usage_(std::move(usage)) {
  shared_.add_options()("help,h", "print this and leave");
}

void CommandParser::positional(const std::string& name, int count) {
  positional_.add(name.c_str(), count);
  positional_names_.push_back(name);
}

bool CommandParser::parse(const std::vector<std::string>& arguments) {
  command_line_ = name_;
  for (const std::string& argument : arguments) {
    command_line_ += " " + shell_word(argument);
  }
  if (arguments == std::vector<std::string>{kHelpJson}) {
    std::fputs((help_json(help()).dump() + "\n").c_str(), stdout);
    return false;
  }
  po::options_description all;
  all.add(options_).add(shared_);
  try {
    // Abbreviated options are refused: they would change their meaning when options are added.
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(
        po::command_line_parser(arguments).options(all).positional(positional_).style(style).run(),
        values_);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> known;
    for (const auto& option : all.options()) {
      known.push_back("--" + option->long_name());
    }
    fail(unknown_name("option", error.get_option_name(), known));
  } catch (const po::error& error) {
    fail(error.what());
  }
  if (has("help")) {
    std::fputs(help_text(help(), screen_of(STDOUT_FILENO)).c_str(), stdout);
    return false;
  }
  return true;
}

void CommandParser::fail(const std::string& message) const {
  const std::string joint = message.ends_with('?') ? " see: " : "; see: ";
  throw InputError(name_ + ": error: " + message + joint + help_command());
}

CommandHelp CommandParser::help() const {
  CommandHelp help{name_, usage_, {}};
  for (const auto* group : {&options_, &shared_}) {
    for (const auto& option : group->options()) {
      OptionHelp one = option_help(option->long_name(), option->description());
      const std::string shown =
          option->canonical_display_name(po::command_line_style::allow_dash_for_short);
      one.letter = shown.size() == 2 ? shown.substr(1) : "";
      one.takes_value = option->semantic()->max_tokens() > 0;
      one.default_value = one.takes_value ? default_of(*option) : "";
      one.positional = std::count(positional_names_.begin(), positional_names_.end(), one.name) > 0;
      one.shared = group == &shared_;
      help.options.push_back(std::move(one));
    }
  }
  return help;
}

}  // namespace stepsim
