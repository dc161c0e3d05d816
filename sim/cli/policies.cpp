#include <algorithm>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/table.h"
#include "sim/ask/question.h"
#include "sim/batching/policies/policy_table.h"

namespace stepsim {

namespace {

struct PoliciesOptions {
  std::vector<std::string> kinds;
  bool all = false;
};

constexpr const char* kPoliciesUsage =
    "usage: stepsim policies [KIND…] [--all] [--json FILE]\n\n"
    "The kinds of batching policies a scenario can name ([[policy]] kind = …): the ones to try\n"
    "first; of the KINDs, or with --all of every kind, their parameters and what gives such\n"
    "batches in a training.\n\n"
    "examples:\n"
    "  stepsim policies\n"
    "  stepsim policies token_budget hf_group_by_length\n"
    "  stepsim policies --all\n"
    "  stepsim policies --json -\n";

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

Answer ask_policies(const Request&, const PoliciesOptions& options) {
  for (const std::string& name : options.kinds) {
    (void)policy_kind(name);  // Raises InputError that names the nearest.
  }
  const bool few = options.kinds.empty() && !options.all;
  Json list = Json::array();
  std::string text;
  for (const PolicyFamily& family : policy_families()) {
    Table table({"kind", "gives such batches"});
    for (const PolicyKind& kind : family.kinds) {
      list.push_back(policy_json(family, kind));
      if (options.all || std::ranges::find(options.kinds, kind.name) != options.kinds.end()) {
        text += policy_details(kind);
      }
      if (kind.is_common) {
        table.add({kind.name, kind.source});
      }
    }
    if (few) {
      text += family.name + "\n\n" + table.text() + "\n";
    }
  }
  if (few) {
    text += fmt::format(
        "These are the ones to try first, of {}. Details: stepsim policies KIND, or "
        "--all\n",
        list.size());
  }
  Answer answer;
  answer.text = [=](const Screen&) { return text; };
  answer.json = [=] { return list; };
  return answer;
}

}  // namespace

Question policies_question() {
  return question(
      "policies",
      "the batching policies there are",
      kPoliciesUsage,
      std::vector<OptionRow>{
          option("kinds", &PoliciesOptions::kinds, "KIND…: of a policy").positional(-1),
          option("all", &PoliciesOptions::all, "every kind, in detail"),
          option("json", &Outputs::json, "FILE or -: write the list as JSON").written()},
      ask_policies);
}

}  // namespace stepsim
