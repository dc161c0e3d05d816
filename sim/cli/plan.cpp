#include "sim/ask/question.h"
#include "sim/report/plan_report.h"
#include "sim/report/varlen_report.h"
#include "sim/study/scenario_plans.h"

namespace stepsim {

namespace {

struct PlanOptions {
  std::string policy;
  std::string out;
  std::string out_dir;
};

constexpr const char* kPlanUsage =
    "usage: stepsim plan SCENARIO --policy NAME --out FILE [options]\n"
    "       stepsim plan SCENARIO --out-dir FOLDER [options]\n\n"
    "Writes the batches of every step and rank (JSONL): of one policy to a file, or of all\n"
    "policies to FOLDER/POLICY.jsonl. python3 -m stepsim.torch.live trains them.\n\n"
    "examples:\n"
    "  stepsim plan scenarios/token_skew.toml --policy bucketing --out bucketing.jsonl\n"
    "  stepsim plan scenarios/token_skew.toml --out-dir plans --csv plans/all.csv\n";

Answer ask_plan(const Request& request, const PlanOptions& options) {
  const AskedScenario asked = asked_scenario(request);
  if (!request.outputs.json.empty()) {
    request.fail("a plan is JSONL already; use --out FILE");
  }
  if (options.out.empty() == options.out_dir.empty() && request.outputs.csv.empty()) {
    request.fail("give either --out FILE or --out-dir FOLDER");
  }
  const Scenario scenario = asked.read();
  const bool one = !options.out.empty() || !options.policy.empty();
  ScenarioPlans planned = one ? plan_one(scenario, options.policy) : plan_all(scenario);
  Answer answer;
  answer.warnings = planned.warnings;
  if (!options.out.empty()) {
    write_plan(options.out, planned.plans.front());
  }
  std::string written;
  if (!options.out_dir.empty()) {
    const std::vector<std::string> files = plan_files(planned.plans, options.out_dir);
    keep_scenario_files(request, scenario, "out-dir", files);
    write_plans(planned.plans, options.out_dir);
    written = written_plans_text(scenario, files);
  }
  if (options.out != "-") {
    answer.text = [=, uses = planned.varlen_uses](const Screen& screen) {
      return varlen_text(uses, screen) + written;
    };
  }
  answer.csv = [plans = std::move(planned.plans)] { return plan_csv(plans); };
  return answer;
}

}  // namespace

Question plan_question() {
  return question(
      "plan",
      "write the batches of every step and rank",
      kPlanUsage,
      option_table(
          {scenario_options(),
           {option("policy", &PlanOptions::policy, "POLICY: of the scenario"),
            option("out", &PlanOptions::out, "FILE or -: the plan (JSONL)").written(),
            option("out-dir", &PlanOptions::out_dir, "FOLDER: the plans of all policies")}}),
      ask_plan);
}

}  // namespace stepsim
