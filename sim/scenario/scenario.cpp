#include "sim/scenario/scenario.h"

#include <memory>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
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
  read_ddp(root, scenario);
  read_optimizer(root, scenario);
  read_data(root, scenario);
  read_machine(root, scenario);
  read_new_shapes(root, scenario);
  read_policies(root, scenario);
  return scenario;
}

}  // namespace

Scenario read_scenario(const std::string& path, std::span<const std::string> overrides) {
  return parse_scenario(read_text(path), path, overrides);
}

Scenario parse_scenario(const std::string& text,
                        const std::string& path,
                        std::span<const std::string> overrides) {
  Scenario parsed;
  parsed.text = text;
  parsed.document = std::make_shared<const TomlDocument>(parse_toml(text, path));
  return with_settings(parsed, {{overrides.begin(), overrides.end()}, "--set"});
}

Scenario with_settings(const Scenario& scenario, const StudySettings& study) {
  auto document = std::make_shared<TomlDocument>(*scenario.document);
  apply_settings(*document, study);
  TomlDocument settled = *document;
  drop_replaced_keys(settled);
  Scenario changed = scenario_of(settled, scenario.text);
  changed.overrides = scenario.overrides;
  changed.overrides.insert(changed.overrides.end(), study.set.begin(), study.set.end());
  changed.document = std::move(document);
  return changed;
}

std::string scenario_text(const std::string& text,
                          const std::string& path,
                          std::span<const std::string> overrides) {
  TomlDocument document = parse_toml(text, path);
  apply_settings(document, {{overrides.begin(), overrides.end()}, "--set"});
  drop_replaced_keys(document);
  (void)scenario_of(document, text);  // It also finds out which overrides are texts.
  make_paths_absolute(document);
  return toml_text(document.root);
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
