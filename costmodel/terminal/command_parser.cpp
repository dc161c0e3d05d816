#include "costmodel/terminal/command_parser.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/same_file.h"
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

const po::value_semantic* option_flag() {
  return po::value<bool>()->zero_tokens()->implicit_value(true);
}

const po::value_semantic* option_texts() {
  return po::value<std::vector<std::string>>()->multitoken();
}

const po::value_semantic* option_text() {
  return po::value<std::string>();
}

template <typename T>
const po::value_semantic* option_value() {
  return po::value<T>();
}

template <typename T>
const po::value_semantic* option_value(T fallback) {
  return po::value<T>()->default_value(fallback);
}

namespace {

/// Whether a value of this kind, as the help shows it, is a file's name.
bool names_a_file(std::string value) {
  constexpr std::array kFiles = {"FILE",
                                 "PROFILE",
                                 "PLAN",
                                 "SAMPLES",
                                 "SHAPES",
                                 "RECORD",
                                 "RUN",
                                 "TRACE",
                                 "TABLE",
                                 "SCENARIO",
                                 "PROGRAM"};
  if (const std::size_t dots = value.find("…"); dots != std::string::npos) {
    value.erase(dots);
  }
  return std::ranges::find(kFiles, value) != kFiles.end();
}

}  // namespace

void add_file_option(const std::string& name,
                     const std::string& description,
                     bool writes,
                     FileOptions& files) {
  if (names_a_file(option_help(name, description).value)) {
    files.read.insert(name);
  }
  if (writes) {
    files.written.insert(name);
  }
}

struct CommandParser::Boost {
  po::options_description options;
  po::options_description shared;
  po::positional_options_description positional;
  po::variables_map values;
};

CommandParser::CommandParser(std::string name, std::string usage)
    : name_(std::move(name)), usage_(std::move(usage)), boost_(std::make_unique<Boost>()) {
  boost_->shared.add_options()("help,h", "show this help");
}

CommandParser::~CommandParser() = default;

void CommandParser::add(std::initializer_list<Option> options) {
  add_to(false, options);
}

void CommandParser::add_shared(std::initializer_list<Option> options) {
  add_to(true, options);
}

void CommandParser::add_to(bool shared, std::initializer_list<Option> options) {
  for (const Option& option : options) {
    (shared ? boost_->shared : boost_->options)
        .add_options()(option.name, option.value, option.description);
    add_file_option(option.name, option.description, option.writes, files_);
  }
}

void CommandParser::positional(const std::string& name, int count) {
  boost_->positional.add(name.c_str(), count);
  files_.inputs.insert(name);
}

bool CommandParser::has(const std::string& name) const {
  return boost_->values.count(name) > 0;
}

template <typename T>
T CommandParser::get(const std::string& name) const {
  return boost_->values[name].as<T>();
}

template const po::value_semantic* option_value<std::vector<std::string>>();
template const po::value_semantic* option_value<int>();
template const po::value_semantic* option_value<std::int64_t>();
template const po::value_semantic* option_value(std::string);
template const po::value_semantic* option_value(int);
template const po::value_semantic* option_value(std::uint64_t);
template int CommandParser::get(const std::string&) const;
template std::int64_t CommandParser::get(const std::string&) const;
template std::uint64_t CommandParser::get(const std::string&) const;
template std::string CommandParser::get(const std::string&) const;
template std::vector<std::string> CommandParser::get(const std::string&) const;

std::string CommandParser::text(const std::string& name) const {
  return maybe<std::string>(name).value_or("");
}

std::vector<std::string> CommandParser::list(const std::string& name) const {
  return maybe<std::vector<std::string>>(name).value_or(std::vector<std::string>());
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
  all.add(boost_->options).add(boost_->shared);
  try {
    // Abbreviated options are refused: they would change their meaning when options are added.
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    const po::parsed_options parsed = po::command_line_parser(arguments)
                                          .options(all)
                                          .positional(boost_->positional)
                                          .style(style)
                                          .run();
    po::store(parsed, boost_->values);
    given_ = mapped(parsed.options, [](const po::option& one) {
      return GivenOption{one.string_key, one.value, one.original_tokens};
    });
  } catch (const po::unknown_option& error) {
    const std::vector<std::string> known =
        mapped(all.options(), [](const auto& option) { return "--" + option->long_name(); });
    fail(unknown_name("option", error.get_option_name(), known));
  } catch (const po::error& error) {
    fail(error.what());
  }
  if (has("help")) {
    std::fputs(help_text(help(), screen_of(STDOUT_FILENO)).c_str(), stdout);
    return false;
  }
  keep_files_apart(name_, given_, files_);
  return true;
}

void CommandParser::fail(const std::string& message) const {
  fail_command(name_, message);
}

CommandHelp CommandParser::help() const {
  CommandHelp help{name_, usage_, {}};
  for (const auto* group : {&boost_->options, &boost_->shared}) {
    for (const auto& option : group->options()) {
      OptionHelp one = option_help(option->long_name(), option->description());
      const std::string shown =
          option->canonical_display_name(po::command_line_style::allow_dash_for_short);
      one.letter = shown.size() == 2 ? shown.substr(1) : "";
      one.takes_value = option->semantic()->max_tokens() > 0;
      one.default_value = one.takes_value ? default_of(*option) : "";
      one.positional = files_.inputs.contains(one.name);
      one.shared = group == &boost_->shared;
      help.options.push_back(std::move(one));
    }
  }
  return help;
}

}  // namespace stepsim
