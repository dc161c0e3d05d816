#include <algorithm>
#include <filesystem>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/shipped.h"
#include "costmodel/terminal/table.h"
#include "sim/batching/policies/policy_table.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"

namespace stepsim {

namespace {

constexpr const char* kShippedProfiles = "scenarios/profiles";

/// The list as text, or as JSON where asked.
Answer catalog(const OptionParser& parser,
               std::function<std::string(const Screen&)> text,
               const Json& json) {
  Answer answer;
  answer.outputs.json = parser.text("json");
  answer.text = std::move(text);
  answer.json = [=] { return json; };
  return answer;
}

void add_json_option(OptionParser& parser) {
  parser.add({{"json", option_text(), "FILE or -: write the list as JSON", true}});
}

std::vector<std::string> profile_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") {
      files.push_back(entry.path().string());
    }
  }
  if (error) {
    const bool is_shipped = folder == kShippedProfiles;
    throw InputError(
        SourcePlace{"stepsim profiles"},
        is_shipped ? fmt::format("no shipped profiles found: there is no folder {} here, nor above "
                                 "the program, as {}. Install stepsim (meson install -C build), or "
                                 "name a folder with --dir",
                                 folder,
                                 shipped_places(folder).at(1))
                   : "cannot read folder " + printable(folder) + ": " + error.message() +
                         "; name another with --dir");
  }
  std::ranges::sort(files);
  return files;
}

Json policy_json(const PolicyFamily& family, const PolicyKind& kind) {
  return {{"kind", kind.name},
          {"family", family.name},
          {"summary", kind.summary},
          {"parameters",
           mapped(kind.parameters,
                  [](const PolicyParameter& parameter) { return describe(parameter); })},
          {"source", kind.source},
          {"common", kind.is_common}};
}

std::string policy_details(const PolicyKind& kind) {
  const std::vector<std::string> parameters =
      mapped(kind.parameters, [](const PolicyParameter& parameter) { return describe(parameter); });
  return fmt::format("{}\n  {}\n  parameters: {}\n  from: {}\n",
                     kind.name,
                     kind.summary,
                     parameters.empty() ? "none" : fmt::format("{}", fmt::join(parameters, ", ")),
                     kind.source);
}

}  // namespace

Answer policies_command(const Request& request) {
  OptionParser parser(
      "policies",
      "usage: stepsim policies [KIND…] [--all] [--json FILE]\n\n"
      "The kinds of batching policies a scenario can name ([[policy]] kind = …): the ones to try\n"
      "first; of the KINDs, or with --all of every kind, their parameters and what gives such\n"
      "batches in a training.\n\n"
      "examples:\n"
      "  stepsim policies\n"
      "  stepsim policies token_budget hf_group_by_length\n"
      "  stepsim policies --all\n"
      "  stepsim policies --json -\n",
      request);
  parser.add({{"kinds", option_value<std::vector<std::string>>(), "KIND…: of a policy"},
              {"all", option_flag(), "every kind, in detail"}});
  parser.positional("kinds", -1);
  add_json_option(parser);
  if (!parser.parse()) {
    return {};
  }
  const std::vector<std::string> names = parser.list("kinds");
  for (const std::string& name : names) {
    (void)policy_kind(name);  // Raises InputError that names the nearest.
  }
  Json list = Json::array();
  std::string text;
  for (const PolicyFamily& family : policy_families()) {
    Table table({"kind", "gives such batches"});
    for (const PolicyKind& kind : family.kinds) {
      list.push_back(policy_json(family, kind));
      if (std::ranges::find(names, kind.name) != names.end() || parser.has("all")) {
        text += policy_details(kind);
      }
      if (kind.is_common) {
        table.add({kind.name, kind.source});
      }
    }
    if (names.empty() && !parser.has("all")) {
      text += family.name + "\n\n" + table.text() + "\n";
    }
  }
  if (names.empty() && !parser.has("all")) {
    text += fmt::format(
        "These are the ones to try first, of {}. Details: stepsim policies KIND, or "
        "--all\n",
        list.size());
  }
  return catalog(
      parser, [=](const Screen&) { return text; }, list);
}

Answer models_command(const Request& request) {
  OptionParser parser("models",
                      "usage: stepsim models [--json FILE]\n\n"
                      "The model presets a scenario can name ([model] preset = …).\n\n"
                      "examples:\n"
                      "  stepsim models\n"
                      "  stepsim models --json -\n",
                      request);
  add_json_option(parser);
  if (!parser.parse()) {
    return {};
  }
  Table table(
      {"preset", "layers", "hidden", "heads", "vocab", "parameters", "gradients", "source"});
  Json list = Json::array();
  for (const ModelPreset& preset : model_presets()) {
    const TransformerConfig& config = preset.config;
    const std::int64_t count = parameter_count(config);
    table.add({config.name,
               std::to_string(config.layers),
               std::to_string(config.hidden),
               std::to_string(config.heads),
               std::to_string(config.vocab),
               std::to_string(count),
               format_bytes(Bytes(count * element_size(config.parameter_dtype))),
               preset.source});
    list.push_back({{"name", config.name},
                    {"layers", config.layers},
                    {"hidden", config.hidden},
                    {"heads", config.heads},
                    {"vocab", config.vocab},
                    {"parameters", count},
                    {"source", preset.source}});
  }
  return catalog(
      parser, [=](const Screen& screen) { return table.text(screen); }, list);
}

Answer profiles_command(const Request& request) {
  OptionParser parser("profiles",
                      "usage: stepsim profiles [--dir FOLDER] [--json FILE]\n\n"
                      "The calibrated machines in a folder: without --dir the shipped ones, which\n"
                      "--profile and [cluster] profile also take by name.\n\n"
                      "examples:\n"
                      "  stepsim profiles\n"
                      "  stepsim profiles --dir my_machines --json -\n",
                      request);
  add_json_option(parser);
  parser.add(
      {{"dir", option_value<std::string>(kShippedProfiles), "FOLDER: where the profiles are"}});
  if (!parser.parse()) {
    return {};
  }
  Table table({"profile", "device", "backend", "costs", "all-reduce ranks", "file"});
  Json list = Json::array();
  std::string origins;
  for (const std::string& file : profile_files(shipped_path(parser.text("dir")))) {
    const Profile profile = read_profile(file);
    std::vector<int> ranks = mapped(profile.collectives, &CollectiveCost::ranks);
    table.add({profile.name,
               profile.device,
               profile.backend,
               std::to_string(profile.ops.size()),
               fmt::format("{}", fmt::join(ranks, ",")),
               file});
    if (const std::string origin = compute_prices_origin(profile); !origin.empty()) {
      origins += fmt::format(
          "{}: prices of compute: {}\n", profile.name, printable(origin, std::string::npos));
    }
    list.push_back({{"name", profile.name},
                    {"device", profile.device},
                    {"backend", profile.backend},
                    {"file", file},
                    {"all_reduce_ranks", ranks},
                    {"provenance", *profile.provenance}});
  }
  return catalog(
      parser, [=](const Screen& screen) { return table.text(screen) + origins; }, list);
}

}  // namespace stepsim
