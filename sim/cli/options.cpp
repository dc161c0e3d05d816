#include "sim/cli/options.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/memory_limit.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/records/shipped.h"
#include "sim/report/html/page.h"

namespace stepsim {

namespace {

/// The scenario with a name near to that of one that is not there; else empty.
std::string nearest_scenario(const std::string& path) {
  std::error_code error;
  if (path == "-" || std::filesystem::exists(path, error)) {
    return "";
  }
  if (is_name_alone(path)) {
    return nearest_name(path, shipped_scenarios());
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

OptionParser::OptionParser(std::string command, std::string usage, const Request& request)
    : CommandParser("stepsim", std::move(command), std::move(usage)), request_(request) {}

void OptionParser::add_common() {
  add_shared({{"scenario", option_text(), "SCENARIO: scenario file (TOML)"},
              {"set",
               option_value<std::vector<std::string>>(),
               "KEY=VALUE: any key of the scenario, e.g. ddp.bucket_cap=\"50 MiB\"; may repeat"},
              {"seed", option_text(), "NUMBER: scenario.seed"},
              {"steps", option_text(), "NUMBER: scenario.steps"},
              {"profile", option_text(), "PROFILE: in place of the scenario's"},
              {"memory-limit",
               option_text(),
               "SIZE: refuse what is estimated to need more; without it, more than is free"}});
  add_outputs();
  positional("scenario", 1);
}

void OptionParser::add_outputs() {
  add_shared({{"json", option_text(), "FILE or -: write the result as JSON", true},
              {"csv", option_text(), "FILE or -: write the result as CSV", true},
              {"quiet,q", option_flag(), "suppress terminal output"}});
}

void OptionParser::add_html() {
  add({{"html", option_text(), "FILE or -: write a page that shows the result", true}});
}

Outputs OptionParser::outputs() const {
  Outputs options;
  options.json = text("json");
  options.csv = text("csv");
  options.html = text("html");
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

KeptRows OptionParser::rows() const {
  const bool wants = request_.wants_all_forms || has("json") || has("csv") || has("html");
  return wants ? KeptRows::Rows : KeptRows::None;
}

std::vector<std::string> OptionParser::question() const {
  return arguments_without(
      {"json", "csv", "html", "quiet", "threads", "resume", "shard", "memory-limit"});
}

CommonOptions OptionParser::common() const {
  CommonOptions options;
  options.outputs = outputs();
  if (!has("scenario")) {
    fail("no scenario file given");
  }
  const auto named = text("scenario");
  options.scenario_text = request_.scenario_text;
  if (options.scenario_text) {
    options.scenario = named;
  } else {
    options.scenario = scenario_path(named);
    if (const std::string near = nearest_scenario(options.scenario); !near.empty()) {
      fail(fmt::format(
          "no scenario file '{}'; did you mean '{}'?", printable(named), printable(near)));
    }
  }
  for (const char* name : {"seed", "steps"}) {
    if (has(name)) {
      options.set.push_back(fmt::format("scenario.{}={}", name, text(name)));
    }
  }
  if (has("profile")) {
    options.set.push_back("cluster.profile=" + profile_path(text("profile")));
  }
  std::ranges::copy(list("set"), std::back_inserter(options.set));
  if (has("memory-limit")) {
    try {
      set_memory_limit(parse_bytes(text("memory-limit")));
    } catch (const InputError& error) {
      fail(fmt::format("--memory-limit: {}", error.what()));
    }
  }
  return options;
}

Scenario load_scenario(const CommonOptions& options) {
  return options.scenario_text
             ? parse_scenario(*options.scenario_text, options.scenario, options.set)
             : read_scenario(options.scenario, options.set);
}

}  // namespace stepsim
