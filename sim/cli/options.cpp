#include "sim/cli/options.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/cli/shipped.h"
#include "sim/report/html/page.h"

namespace stepsim {

namespace {

/// The scenario file with a name near to that of one that is not there; else empty.
std::string nearest_scenario(const std::string& path) {
  std::error_code error;
  if (path == "-" || std::filesystem::exists(path, error)) {
    return "";
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder.empty() ? "." : folder, error)) {
    if (entry.path().extension() == ".toml") {
      names.push_back((folder / entry.path().filename()).string());
    }
  }
  return nearest_name(path, names);
}

}  // namespace

OptionParser::OptionParser(std::string command, std::string usage)
    : CommandParser("stepsim", std::move(command), std::move(usage)) {}

void OptionParser::add_common() {
  add_shared({{"scenario", option_value<std::string>(), "SCENARIO: scenario file (TOML)"},
              {"set",
               option_value<std::vector<std::string>>(),
               "KEY=VALUE: any key of the scenario, e.g. ddp.bucket_cap=\"50 MiB\"; may repeat"},
              {"seed", option_value<std::string>(), "NUMBER: scenario.seed"},
              {"steps", option_value<std::string>(), "NUMBER: scenario.steps"},
              {"profile", option_value<std::string>(), "PROFILE: in place of the scenario's"},
              {"json", option_value<std::string>(), "FILE or -: write the result as JSON"},
              {"csv", option_value<std::string>(), "FILE or -: write the result as CSV"},
              {"quiet,q", option_flag(), "no text, only files and the exit status"}});
  positional("scenario", 1);
}

void OptionParser::add_html() {
  add({{"html", option_value<std::string>(), "FILE or -: write a page that shows the result"}});
}

CommonOptions OptionParser::output_options() const {
  CommonOptions options;
  options.json = has("json") ? get<std::string>("json") : "";
  options.csv = has("csv") ? get<std::string>("csv") : "";
  options.html = has("html") ? get<std::string>("html") : "";
  options.quiet = has("quiet");
  if (options.json == "-" && options.csv == "-") {
    fail("JSON and CSV cannot both go to standard output");
  }
  if (options.html == "-" && (options.json == "-" || options.csv == "-")) {
    fail("only one of --html, --json and --csv can go to standard output");
  }
  if (!options.html.empty()) {
    require_page();
  }
  return options;
}

CommonOptions OptionParser::common() const {
  CommonOptions options = output_options();
  if (!has("scenario")) {
    fail("no scenario file given");
  }
  const auto named = get<std::string>("scenario");
  options.scenario = shipped_path(named);
  if (const std::string near = nearest_scenario(options.scenario); !near.empty()) {
    fail(fmt::format(
        "no scenario file '{}'; did you mean '{}'?", printable(named), printable(near)));
  }
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
  return read_scenario(options.scenario, options.set);
}

void print_text(const CommonOptions& options, const std::string& text) {
  if (!options.quiet && options.json != "-" && options.csv != "-" && options.html != "-") {
    print_report(text);
  }
}

}  // namespace stepsim
