#pragma once

#include <string>
#include <utility>
#include <vector>

#include "costmodel/records/plan_file.h"
#include "sim/batching/varlen_epoch.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The batches of one policy or several, at every step and rank.
struct ScenarioPlans {
  std::vector<Plan> plans;  ///< One a policy.
  /// The policies' names, and how their batches fit into a varlen call; others are left out.
  std::vector<std::pair<std::string, VarlenUse>> varlen_uses;
  std::vector<std::string> warnings;
};

/// Plans one policy. `policy`: its name; empty: the first. Raises as plan_policy() does.
[[nodiscard]] ScenarioPlans plan_one(const Scenario& scenario, const std::string& policy);
/// Plans all policies of the scenario, and shows its progress.
[[nodiscard]] ScenarioPlans plan_all(const Scenario& scenario);

/// A file for each plan, FOLDER/POLICY.jsonl. In names of files only letters, digits, '-', '_' and
/// '.' stay.
[[nodiscard]] std::vector<std::string> plan_files(const std::vector<Plan>& plans,
                                                  const std::string& folder);
/// Writes each plan to its file, and makes the folder where it is not there. Raises
/// EnvironmentFault.
void write_plans(const std::vector<Plan>& plans, const std::string& folder);

}  // namespace stepsim
