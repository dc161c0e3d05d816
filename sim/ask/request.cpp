#include "sim/ask/request.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/memory_limit.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/records/shipped.h"
#include "sim/report/html/page.h"
#include "sim/scenario/toml_tree.h"

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

/// The value of an option that sets a key of whole numbers. Raises InputError where it is none: the
/// key's own message would name the key, which nobody gave.
const std::string& whole_number(const Request& request,
                                std::string_view option,
                                const std::string& text) {
  const std::optional<TomlValue> value = parse_toml_value(text);
  if (!value || value->kind != TomlValue::Kind::Integer) {
    request.fail(
        fmt::format("--{} takes a whole number, as 20, not '{}'", option, printable(text)));
  }
  return text;
}

}  // namespace

KeptRows Request::rows() const {
  const bool wants =
      wants_all_forms || !outputs.json.empty() || !outputs.csv.empty() || !outputs.html.empty();
  return wants ? KeptRows::Rows : KeptRows::None;
}

AskedScenario asked_scenario(const Request& request) {
  const ScenarioOptions& options = request.scenario;
  if (options.scenario.empty()) {
    request.fail("no scenario file given");
  }
  AskedScenario asked;
  asked.request = &request;
  asked.given = request.given_scenario.value_or(GivenScenario{scenario_path(options.scenario)});
  if (std::holds_alternative<std::monostate>(asked.given.content)) {
    if (const std::string near = nearest_scenario(asked.given.file); !near.empty()) {
      request.fail(fmt::format("no scenario file '{}'; did you mean '{}'?",
                               printable(options.scenario),
                               printable(near)));
    }
  }
  if (options.seed) {
    asked.set.push_back("scenario.seed=" + whole_number(request, "seed", *options.seed));
  }
  if (options.steps) {
    asked.set.push_back("scenario.steps=" + whole_number(request, "steps", *options.steps));
  }
  if (options.profile) {
    asked.set.push_back("cluster.profile=" + profile_path(*options.profile));
  }
  std::ranges::copy(options.set, std::back_inserter(asked.set));
  if (options.memory_limit) {
    try {
      set_memory_limit(parse_bytes(*options.memory_limit));
    } catch (const InputError& error) {
      request.fail(fmt::format("--memory-limit: {}", error.what()));
    }
  }
  return asked;
}

Scenario AskedScenario::read() const {
  Scenario scenario = given.read(set);
  keep_scenario_files(*request, scenario);
  return scenario;
}

void keep_scenario_files(const Request& request, const Scenario& scenario) {
  for (const GivenOption& output : request.given) {
    if (request.written.contains(output.name)) {
      keep_scenario_files(request, scenario, output.name, output.values);
    }
  }
}

void keep_scenario_files(const Request& request,
                         const Scenario& scenario,
                         const std::string& option,
                         std::span<const std::string> files) {
  for (const std::string& file : files) {
    if (file != "-" && is_read_by(scenario, file)) {
      request.fail(
          fmt::format("--{} would overwrite {}, an input that the scenario reads; give it a "
                      "name of its own",
                      option,
                      printable(file)));
    }
  }
}

Scenario read_asked(const Request& request) {
  return asked_scenario(request).read();
}

void check_outputs(const Request& request) {
  const Outputs& outputs = request.outputs;
  if (outputs.json == "-" && outputs.csv == "-") {
    request.fail("JSON and CSV cannot both go to standard output");
  }
  const bool data = outputs.json == "-" || outputs.csv == "-";
  if (outputs.markdown == "-" && (data || outputs.html == "-")) {
    request.fail("only one of --report, --html, --json and --csv can go to standard output");
  }
  if (outputs.html == "-" && data) {
    request.fail("only one of --html, --json and --csv can go to standard output");
  }
  if (!outputs.html.empty()) {
    require_page();
  }
}

}  // namespace stepsim
