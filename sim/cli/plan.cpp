#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/memory_limit.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/commands.h"
#include "costmodel/terminal/progress.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/step_cost.h"
#include "sim/report/csv.h"
#include "sim/report/varlen_report.h"

namespace stepsim {

namespace {

constexpr const char* kPlanUsage =
    "usage: stepsim plan SCENARIO --policy NAME --out FILE [options]\n"
    "       stepsim plan SCENARIO --out-dir FOLDER [options]\n\n"
    "Writes the batches of every step and rank (JSONL): of one policy to a file, or of all\n"
    "policies to FOLDER/POLICY.jsonl. python3 -m stepsim.torch.live trains them.\n\n"
    "examples:\n"
    "  stepsim plan scenarios/token_skew.toml --policy bucketing --out bucketing.jsonl\n"
    "  stepsim plan scenarios/token_skew.toml --out-dir plans --csv plans/all.csv\n";

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

bool cuts_samples(const Plan& plan) {
  return std::ranges::any_of(plan.micro_batches,
                             [](const MicroBatch& batch) { return !batch.offsets.empty(); });
}

/// The columns of a plan table: one row a policy, rank and step, as the token-skew lab records it;
/// where a plan cuts samples, also where its parts start.
std::string plan_csv(const std::vector<Plan>& plans) {
  const bool offsets = std::ranges::any_of(plans, cuts_samples);
  std::string text =
      "case,rank,step,samples,useful_tokens,padded_tokens,max_length,sample_ids,lengths";
  text += offsets ? ",offsets\n" : "\n";
  for (const Plan& plan : plans) {
    for (int rank = 0; rank < plan.ranks; ++rank) {
      for (const MicroBatch& batch : plan.micro_batches) {
        if (batch.rank != rank) {
          continue;
        }
        const BatchShape shape = batch.shape();
        text += fmt::format("{},{},{},{},{},{},{},{},{}{}\n",
                            csv_field(plan.policy),
                            rank,
                            batch.step,
                            batch.samples.size(),
                            shape.useful_tokens,
                            shape.padded_tokens(),
                            shape.max_length,
                            fmt::join(batch.samples, " "),
                            fmt::join(batch.lengths, " "),
                            offsets ? fmt::format(",{}", fmt::join(batch.offsets, " ")) : "");
      }
    }
  }
  return text;
}

}  // namespace

Answer plan_command(const Request& request) {
  OptionParser parser("plan", kPlanUsage, request);
  parser.add_common();
  parser.add({{"policy", option_value<std::string>(""), "POLICY: of the scenario"},
              {"out", option_text(), "FILE or -: the plan (JSONL)", true},
              {"out-dir", option_text(), "FOLDER: the plans of all policies"}});
  if (!parser.parse()) {
    return {};
  }
  const CommonOptions common = parser.common();
  if (!common.outputs.json.empty()) {
    parser.fail("a plan is JSONL already; use --out FILE");
  }
  const bool all = parser.has("out-dir");
  if (all == parser.has("out") && common.outputs.csv.empty()) {
    parser.fail("give either --out FILE or --out-dir FOLDER");
  }
  const Scenario scenario = load_scenario(common);
  std::vector<Plan> plans;
  std::vector<NamedVarlenUse> varlen_uses;  // How the batches fit into a varlen call.
  std::vector<std::string> by_tokens;
  const auto add_plan = [&](const BatchingPolicy& policy) {
    if (scenario.model_is_unknown && policy.step_cost_use() == StepCostUse::IfKnown) {
      by_tokens.push_back(printable(policy.name()));
    }
    PlannedPolicy planned = plan_policy(scenario, policy, planning_cost(scenario, policy));
    // Other policies can be planned before there is a profile.
    std::error_code error;
    if (policy.step_cost_use() != StepCostUse::Never &&
        std::filesystem::exists(scenario.profile, error)) {
      const Profile profile = read_profile(scenario.profile);
      planned.plan.profile = profile.name;
      planned.plan.profile_id = profile.id.text;
    }
    plans.push_back(std::move(planned.plan));
    if (planned.varlen) {
      varlen_uses.emplace_back(policy.name(), *planned.varlen);
    }
  };
  if (parser.has("out") || !parser.text("policy").empty()) {
    add_plan(find_policy(scenario, parser.text("policy")));
  } else {
    Progress progress("planning");
    const MemoryShares shares(scenario.policies.size());  // All plans are there in the end.
    for (const BatchingPolicy& policy : scenario.policies) {
      add_plan(policy);
      progress.at(static_cast<double>(plans.size()) /
                  static_cast<double>(scenario.policies.size()));
    }
  }
  Answer answer;
  answer.outputs = common.outputs;
  if (!by_tokens.empty()) {
    answer.warnings.push_back(
        fmt::format("{} planned by padded tokens, since {} is not there yet; plan again when "
                    "it is",
                    fmt::join(by_tokens, ", "),
                    printable(scenario.profile)));
  }
  if (parser.has("out")) {
    write_plan(parser.text("out"), plans.front());
  }
  std::string list;
  if (all) {
    const std::filesystem::path folder = parser.text("out-dir");
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      throw EnvironmentFault("cannot make folder " + folder.string() + ": " + error.message());
    }
    const std::vector<std::string> names = file_names(plans);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const std::string path = (folder / names[i]).string();
      write_plan(path, plans[i]);
      list += " " + shell_word(path);
    }
  }
  const std::string next = scenario.model.family == ModelFamily::Blocks
                               ? "train them with the loader of calibrate/torch, or stepcal grid" +
                                     list + " --out shapes.json, to calibrate on their shapes"
                               : "python3 -m stepsim.torch.live" + list +
                                     " --out-dir live   (trains them here, in PyTorch)";
  if (!parser.has("out") || parser.text("out") != "-") {
    answer.text = [=](const Screen& screen) {
      return varlen_text(varlen_uses, screen) +
             (list.empty() ? "" : fmt::format("wrote{}\nnext: {}\n", list, next));
    };
  }
  answer.csv = [plans = std::move(plans)] { return plan_csv(plans); };
  return answer;
}

}  // namespace stepsim
