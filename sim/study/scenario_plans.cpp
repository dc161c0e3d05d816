#include "sim/study/scenario_plans.h"

#include <filesystem>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/records/profile.h"
#include "costmodel/terminal/progress.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/memory_need.h"
#include "sim/predict/step_cost.h"

namespace stepsim {

namespace {

/// A policy's name for a file: letters, digits, '-', '_' and '.' stay.
std::string plain_name(const std::string& policy) {
  std::string name;
  for (const char c : policy) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || (c == '.' && !name.empty());
    name += plain ? c : '_';
  }
  return name;
}

/// A file for each plan; of policies that would share one the later ones get a number.
std::vector<std::string> file_names(const std::vector<Plan>& plans) {
  std::set<std::string> taken;
  return mapped(plans, [&](const Plan& plan) {
    const std::string name = plain_name(plan.policy);
    std::string file = name + ".jsonl";
    for (int number = 2; !taken.insert(file).second; ++number) {
      file = fmt::format("{}_{}.jsonl", name, number);
    }
    return file;
  });
}

void add_plan(const Scenario& scenario, const BatchingPolicy& policy, ScenarioPlans& result) {
  PlannedPolicy planned = plan_policy(scenario, policy, planning_cost(scenario, policy));
  // Other policies can be planned before there is a profile.
  std::error_code error;
  if (policy.step_cost_use() != StepCostUse::Never &&
      std::filesystem::exists(scenario.profile, error)) {
    const Profile profile = read_profile(scenario.profile);
    planned.plan.profile = profile.name;
    planned.plan.profile_id = profile.id.text;
  }
  result.plans.push_back(std::move(planned.plan));
  if (planned.varlen) {
    result.varlen_uses.emplace_back(policy.name(), *planned.varlen);
  }
}

void warn_of_unknown_times(const Scenario& scenario, ScenarioPlans& result) {
  std::vector<std::string> by_tokens;
  for (const Plan& plan : result.plans) {
    if (scenario.model_is_unknown &&
        find_policy(scenario, plan.policy).step_cost_use() == StepCostUse::IfKnown) {
      by_tokens.push_back(printable(plan.policy));
    }
  }
  if (!by_tokens.empty()) {
    result.warnings.push_back(
        fmt::format("{} planned by padded tokens, since {} is not there yet; plan again when it is",
                    fmt::join(by_tokens, ", "),
                    printable(scenario.profile)));
  }
}

}  // namespace

ScenarioPlans plan_one(const Scenario& scenario, const std::string& policy) {
  ScenarioPlans result;
  add_plan(scenario, find_policy(scenario, policy), result);
  warn_of_unknown_times(scenario, result);
  return result;
}

ScenarioPlans plan_all(const Scenario& scenario) {
  ScenarioPlans result;
  Progress progress("planning");
  check_memory_of_plans(scenario);
  for (const BatchingPolicy& policy : scenario.policies) {
    add_plan(scenario, policy, result);
    progress.at(static_cast<double>(result.plans.size()) /
                static_cast<double>(scenario.policies.size()));
  }
  warn_of_unknown_times(scenario, result);
  return result;
}

std::vector<std::string> plan_files(const std::vector<Plan>& plans, const std::string& folder) {
  return mapped(file_names(plans), [&](const std::string& name) {
    return (std::filesystem::path(folder) / name).string();
  });
}

void write_plans(const std::vector<Plan>& plans, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw EnvironmentFault("cannot make folder " + folder + ": " + error.message());
  }
  const std::vector<std::string> files = plan_files(plans, folder);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    write_plan(files[i], plans[i]);
  }
}

}  // namespace stepsim
