#include "calibrate/cli_options.h"

#include <array>
#include <cstdio>
#include <ctime>

#include <fmt/core.h>

#include "costmodel/input_error.h"
#include "costmodel/shell_word.h"

namespace stepsim {

namespace po = boost::program_options;

OptionParser::OptionParser(std::string command, std::string usage)
    : command_(std::move(command)), usage_(std::move(usage)), options_("options") {
  options_.add_options()("help,h", "print this and leave");
}

void OptionParser::positional(const std::string& name, int count) {
  positional_.add(name.c_str(), count);
}

bool OptionParser::parse(const std::vector<std::string>& arguments) {
  command_line_ = "stepcal " + command_;
  for (const std::string& argument : arguments) {
    command_line_ += " " + shell_word(argument);
  }
  try {
    // Abbreviated options are refused: they would change their meaning when options are added.
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments)
                  .options(options_)
                  .positional(positional_)
                  .style(style)
                  .run(),
              values_);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> known;
    for (const auto& option : options_.options()) {
      known.push_back("--" + option->long_name());
    }
    fail(unknown_name("option", error.get_option_name(), known));
  } catch (const po::error& error) {
    fail(std::string(error.what()) + "; see: stepcal " + command_ + " --help");
  }
  if (!has("help")) {
    return true;
  }
  std::string text = usage_ + "\n";
  for (const auto& option : options_.options()) {
    const bool takes_value = option->semantic()->max_tokens() > 0;
    text += fmt::format("  {:<18} {}\n",
                        "--" + option->long_name() + (takes_value ? " ARG" : ""),
                        option->description());
  }
  std::fputs(text.c_str(), stdout);
  return false;
}

std::string OptionParser::required(const std::string& name, const std::string& what) const {
  if (!has(name) || get<std::string>(name).empty()) {
    fail("no " + what + " given; see: stepcal " + command_ + " --help");
  }
  return get<std::string>(name);
}

std::vector<std::string> OptionParser::list(const std::string& name) const {
  return has(name) ? get<std::vector<std::string>>(name) : std::vector<std::string>();
}

void OptionParser::fail(const std::string& message) const {
  throw InputError("stepcal " + command_ + ": error: " + message);
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

}  // namespace stepsim
