#include "sim/cli/options.h"

#include <cstdio>
#include <filesystem>

#include <fmt/core.h>

#include "costmodel/input_error.h"
#include "sim/cli/shipped.h"
#include "sim/report/html/page.h"

namespace stepsim {

namespace po = boost::program_options;

OptionParser::OptionParser(std::string command, std::string usage)
    : command_(std::move(command)), usage_(std::move(usage)), options_("options") {
  options_.add_options()("help,h", "print this and leave");
}

void OptionParser::add_common() {
  options_.add_options()("scenario", po::value<std::string>(), "scenario file (TOML)")(
      "set",
      po::value<std::vector<std::string>>()->composing(),
      "KEY=VALUE: any key of the scenario, e.g. ddp.bucket_cap=\"50 MiB\"; may repeat")(
      "seed", po::value<std::string>(), "scenario.seed")(
      "steps", po::value<std::string>(), "scenario.steps")(
      "profile", po::value<std::string>(), "profile in place of the scenario's")(
      "json", po::value<std::string>(), "FILE or -: write the result as JSON")(
      "csv", po::value<std::string>(), "FILE or -: write the result as CSV")(
      "quiet,q", po::bool_switch(), "no text, only files and the exit status");
  positional_.add("scenario", 1);
}

void OptionParser::add_html() {
  options_.add_options()(
      "html", po::value<std::string>(), "FILE or -: write a page that shows the result");
}

void OptionParser::positional(const std::string& name, int count) {
  positional_.add(name.c_str(), count);
}

bool OptionParser::parse(const std::vector<std::string>& arguments) {
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
    throw InputError("stepsim " + command_ +
                     ": error: " + unknown_name("option", error.get_option_name(), known));
  } catch (const po::error& error) {
    throw InputError("stepsim " + command_ + ": error: " + error.what() + "; see: stepsim " +
                     command_ + " --help");
  }
  if (has("help")) {
    std::fputs(usage_.c_str(), stdout);
    std::string text = "\n";
    for (const auto& option : options_.options()) {
      const bool takes_value = option->semantic()->max_tokens() > 0;
      text += fmt::format("  {:<22} {}\n",
                          "--" + option->long_name() + (takes_value ? " ARG" : ""),
                          option->description());
    }
    std::fputs(text.c_str(), stdout);
    return false;
  }
  return true;
}

CommonOptions OptionParser::output_options() const {
  CommonOptions options;
  options.json = has("json") ? get<std::string>("json") : "";
  options.csv = has("csv") ? get<std::string>("csv") : "";
  options.html = has("html") ? get<std::string>("html") : "";
  options.quiet = get<bool>("quiet");
  if (options.json == "-" && options.csv == "-") {
    throw InputError("stepsim " + command_ +
                     ": error: JSON and CSV cannot both go to standard output");
  }
  if (options.html == "-" && (options.json == "-" || options.csv == "-")) {
    throw InputError("stepsim " + command_ +
                     ": error: only one of --html, --json and --csv can go to standard output");
  }
  if (!options.html.empty()) {
    require_page();
  }
  return options;
}

CommonOptions OptionParser::common() const {
  CommonOptions options = output_options();
  if (!has("scenario")) {
    throw InputError("stepsim " + command_ + ": error: no scenario file given; see: stepsim " +
                     command_ + " --help");
  }
  options.scenario = get<std::string>("scenario");
  for (const char* name : {"seed", "steps"}) {
    if (has(name)) {
      options.set.push_back(fmt::format("scenario.{}={}", name, get<std::string>(name)));
    }
  }
  if (has("profile")) {
    const auto path = std::filesystem::absolute(shipped_path(get<std::string>("profile")));
    options.set.push_back("cluster.profile=" + path.string());
  }
  if (has("set")) {
    const auto more = get<std::vector<std::string>>("set");
    options.set.insert(options.set.end(), more.begin(), more.end());
  }
  return options;
}

Scenario load_scenario(const CommonOptions& options) {
  return read_scenario(shipped_path(options.scenario), options.set);
}

void print_text(const CommonOptions& options, const std::string& text) {
  if (!options.quiet && options.json != "-" && options.csv != "-" && options.html != "-") {
    std::fputs(text.c_str(), stdout);
  }
}

}  // namespace stepsim
