#include <algorithm>
#include <functional>

#include <fmt/core.h>

#include "sim/scenario_sections.h"

namespace stepsim {
namespace {

void check_name(const TomlReader& table, const std::string& name, const Scenario& scenario) {
  if (name.empty()) {
    table.fail("name", "expected a name");
  }
  const auto same = [&](const PolicySpec& other) { return other.name == name; };
  if (std::any_of(scenario.policies.begin(), scenario.policies.end(), same)) {
    table.fail("name", fmt::format("two policies are called '{}'", printable(name)));
  }
}

/// A parameter is checked where it stands, before make_policy looks at the whole.
std::int64_t read_parameter(const TomlReader& table, const PolicyInfo& info, const char* key) {
  if (!table.has(key)) {
    return 0;
  }
  const auto& taken = info.parameters;
  if (std::find(taken.begin(), taken.end(), key) == taken.end()) {
    table.fail(key,
               fmt::format(
                   "does not apply to policy kind '{}', which takes {}", info.kind, taken.front()));
  }
  return table.integer(key, 1, kMaxSampleLength);
}

PolicySpec read_policy(const TomlReader& unnamed,
                       const TomlValue& value,
                       const Scenario& scenario) {
  PolicySpec spec;
  spec.name = unnamed.text("name");
  check_name(unnamed, spec.name, scenario);
  const TomlReader table(unnamed.document(), value, "policy." + spec.name);
  spec.kind = table.text("kind");
  const PolicyInfo& info =
      table.parsed("kind", [](const std::string& kind) { return std::cref(policy_info(kind)); });
  spec.batch_size = read_parameter(table, info, "batch_size");
  spec.max_tokens = read_parameter(table, info, "max_tokens");
  spec.weighting = read_choice(table, "weighting", "none", weightings());
  if (table.has("lengths")) {
    spec.lengths = read_lengths(table.table("lengths"), scenario);
    const bool has_own_count = spec.lengths->kind == LengthSource::Kind::File ||
                               spec.lengths->kind == LengthSource::Kind::Histogram;
    if (scenario.samples == 0 && !has_own_count) {
      table.fail("lengths", "data.samples is missing, so the number of samples is not known");
    }
  }
  try {
    (void)make_policy(spec);
  } catch (const InputError& error) {
    table.fail(error.what());
  }
  return spec;
}

}  // namespace

void read_policies(const TomlReader& root, Scenario& scenario) {
  if (!root.has("policy")) {
    root.fail("no policy: add a [[policy]] table");
  }
  const TomlValue& policies = root.value("policy");
  if (policies.kind != TomlValue::Kind::List) {
    root.fail("policy",
              fmt::format("expected [[policy]], a list of tables, got {}", describe(policies)));
  }
  if (policies.children.empty()) {
    root.fail("policy", "no policy: the list is empty");
  }
  for (const auto& item : policies.children) {
    const TomlReader unnamed(root.document(), item, "policy");
    if (item.kind != TomlValue::Kind::Table) {
      unnamed.fail(fmt::format("expected a table, got {}", describe(item)));
    }
    scenario.policies.push_back(read_policy(unnamed, item, scenario));
  }
}

}  // namespace stepsim
