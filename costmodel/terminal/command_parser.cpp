#include "costmodel/terminal/command_parser.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/same_file.h"
#include "costmodel/terminal/paint.h"

namespace stepsim {

namespace po = boost::program_options;

namespace {

/// "arg (=25 MiB)" as boost writes a default value.
std::string default_of(const po::option_description& option) {
  const std::string text = option.semantic()->name();
  const std::size_t start = text.find("(=");
  return start == std::string::npos ? "" : text.substr(start + 2, text.size() - start - 3);
}

/// How the library reads such an option; it takes ownership.
const po::value_semantic* semantic_of(const Option& option) {
  switch (option.kind) {
    case OptionKind::Flag:
      return po::value<bool>()->zero_tokens()->implicit_value(true);
    case OptionKind::Texts:
      return po::value<std::vector<std::string>>();
    case OptionKind::TextsToNext:
      return po::value<std::vector<std::string>>()->multitoken();
    case OptionKind::Text:
      break;
  }
  auto* const text = po::value<std::string>();
  return option.fallback.empty() ? text : text->default_value(option.fallback);
}

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

void CommandParser::add(const Option& option) {
  (option.shared ? boost_->shared : boost_->options)
      .add_options()(option.name.c_str(), semantic_of(option), option.description.c_str());
  const std::string name = option.name.substr(0, option.name.find(','));
  add_file_option(name, option.description, option.writes, files_);
  if (option.arguments != 0) {
    boost_->positional.add(name.c_str(), option.arguments);
    files_.inputs.insert(name);
  }
}

bool CommandParser::has(const std::string& name) const {
  return boost_->values.count(name) > 0;
}

std::string CommandParser::text(const std::string& name) const {
  return has(name) ? boost_->values[name].as<std::string>() : "";
}

std::vector<std::string> CommandParser::list(const std::string& name) const {
  return has(name) ? boost_->values[name].as<std::vector<std::string>>()
                   : std::vector<std::string>();
}

bool CommandParser::parse(const std::vector<std::string>& arguments) {
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
  } catch (const po::too_many_positional_options_error&) {
    fail("one file or word more than it takes");
  } catch (const po::error& error) {
    fail(error.what());
  }
  if (has("help")) {
    const Screen screen = screen_of(STDOUT_FILENO);
    std::fputs(printed(help_text(help(), screen), screen).c_str(), stdout);
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
