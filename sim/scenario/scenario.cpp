#include "sim/scenario/scenario.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/same_file.h"
#include "costmodel/io/json_file.h"
#include "sim/scenario/key_table.h"
#include "sim/scenario/overrides.h"
#include "sim/scenario/tables.h"
#include "sim/scenario/toml_text.h"

namespace stepsim {

namespace {

/// The scenario of a document whose overrides are applied.
Scenario scenario_of(const TomlDocument& document, const std::string& text) {
  check_keys(document);
  const TomlReader root(document, document.root, "");
  Scenario scenario;
  scenario.path = document.file;
  scenario.text = text;
  read_scenario_table(root, scenario);
  read_cluster(root, scenario);
  read_collectives(root, scenario);
  read_model(root, scenario);
  read_parallel(root, scenario);
  read_ddp(root, scenario);
  read_machine(root, scenario);
  check_parallel(root, scenario);
  read_optimizer(root, scenario);
  read_data(root, scenario);
  read_new_shapes(root, scenario);
  read_policies(root, scenario);
  scenario.files = document.named_files;
  return scenario;
}

/// The scenario of a document to which these settings were applied.
Scenario settled(TomlDocument document, const std::string& text, std::vector<Setting> settings) {
  TomlDocument without_replaced = document;
  drop_replaced_keys(without_replaced);
  Scenario scenario = scenario_of(without_replaced, text);
  scenario.overrides = std::move(settings);
  scenario.document = std::make_shared<const TomlDocument>(std::move(document));
  return scenario;
}

}  // namespace

Scenario GivenScenario::read(std::span<const std::string> overrides) const {
  TomlDocument document;
  std::string text;
  if (const auto* known = std::get_if<std::shared_ptr<const TomlDocument>>(&content)) {
    document = **known;
    text = toml_text(document.root);
  } else {
    const auto* given = std::get_if<std::string>(&content);
    text = given != nullptr ? *given : read_text(file);
    document = parse_toml(text, file);
  }
  apply_settings(document, {set, "--set"});
  std::vector<Setting> settings = set;
  for (Setting& setting : apply_texts(document, overrides, "--set")) {
    settings.push_back(std::move(setting));
  }
  return settled(std::move(document), text, std::move(settings));
}

Scenario read_scenario(const std::string& path, std::span<const std::string> overrides) {
  return GivenScenario{path}.read(overrides);
}

Scenario parse_scenario(const std::string& text,
                        const std::string& path,
                        std::span<const std::string> overrides) {
  return GivenScenario{path, text}.read(overrides);
}

Scenario with_settings(const Scenario& scenario, const StudySettings& study) {
  TomlDocument document = *scenario.document;
  apply_settings(document, study);
  std::vector<Setting> all = scenario.overrides;
  all.insert(all.end(), study.set.begin(), study.set.end());
  return settled(std::move(document), scenario.text, std::move(all));
}

std::string scenario_text(const Scenario& scenario, const std::vector<Setting>& settings) {
  TomlDocument document = *scenario.document;
  apply_settings(document, {settings});
  drop_replaced_keys(document);
  (void)scenario_of(document, scenario.text);  // It also finds out which settings are texts.
  make_paths_absolute(document);
  return toml_text(document.root);
}

bool is_read_by(const Scenario& scenario, const std::string& file) {
  return is_same_file(file, scenario.path) ||
         std::ranges::any_of(scenario.files,
                             [&](const std::string& named) { return is_same_file(file, named); });
}

Scenario with_attention_of(const BatchingPolicy& policy, Scenario scenario) {
  scenario.model.attention = policy.attention();
  scenario.varlen = policy.varlen();
  return scenario;
}

std::string policy_of_key(const Scenario& scenario, const std::string& key) {
  std::string longest;  // A name can hold dots.
  for (const BatchingPolicy& policy : scenario.policies) {
    if (policy.name().size() > longest.size() && key.starts_with("policy." + policy.name() + ".")) {
      longest = policy.name();
    }
  }
  return longest;
}

const BatchingPolicy& find_policy(const Scenario& scenario, std::string_view name) {
  if (name.empty() && !scenario.policies.empty()) {
    return scenario.policies.front();
  }
  std::vector<std::string> known;
  for (const auto& policy : scenario.policies) {
    if (policy.name() == name) {
      return policy;
    }
    known.push_back(policy.name());
  }
  throw InputError(SourcePlace{scenario.path}, unknown_name("policy", name, known));
}

}  // namespace stepsim
