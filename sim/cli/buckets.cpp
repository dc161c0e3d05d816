#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/buckets/best_buckets_report.h"
#include "sim/report/buckets/buckets_report.h"

namespace stepsim {

namespace {

struct BucketsOptions {
  bool best = false;
  std::string policy;
  std::string params;
};

constexpr const char* kBucketsUsage =
    "usage: stepsim buckets SCENARIO [options]\n"
    "       stepsim buckets SCENARIO --best [--policy POLICY] [options]\n"
    "       stepsim buckets --params FILE [--json FILE|-]\n\n"
    "Prints the gradient buckets that PyTorch DDP makes: those of the first iteration and those\n"
    "after the rebuild, if there is one, in launch order. --best searches for the fastest: over "
    "all single caps, "
    "and\n"
    "over all lists of limits (bucket_cap_mb_list of PyTorch 2.11). --params reads parameter lists "
    "of the form {\"cases\": "
    "[{\"name\", \"params\":\n"
    "[{\"bytes\", \"dtype\", \"sparse\"}], \"ready_order\", \"unused\", \"first_bucket_bytes\", "
    "\"cap_bytes\"}]},\n"
    "or \"limits\", a list of caps, in place of the last two. \"unused\": parameters that a "
    "static\n"
    "graph knows to be unused; they come last in the rebuild.\n\n"
    "examples:\n"
    "  stepsim buckets scenarios/bucket_valley.toml --set ddp.bucket_cap=\"100 MiB\"\n"
    "  stepsim buckets scenarios/bucket_valley.toml --best\n"
    "  stepsim buckets --params my_model.json --json -\n";

Answer answer_of(const std::vector<BucketCase>& cases) {
  Answer answer;
  answer.text = [=](const Screen&) { return bucket_cases_text(cases); };
  answer.json = [=] { return bucket_cases_json(cases); };
  return answer;
}

/// The policy with that name. Without a name: the scenario's first one that fits into memory, or
/// its first where none does. `passed_over`: is given the names of those before it.
const BatchingPolicy& policy_to_search(const Scenario& scenario,
                                       const std::string& name,
                                       const Profile& profile,
                                       std::vector<std::string>& passed_over) {
  const BatchingPolicy& first = find_policy(scenario, name);
  if (!name.empty() || scenario.policies.size() == 1) {
    return first;
  }
  for (const BatchingPolicy& policy : scenario.policies) {
    if (fits_into_memory(scenario, policy, profile)) {
      return policy;
    }
    passed_over.push_back(policy.name());
  }
  passed_over.clear();
  return first;
}

Answer search_best(const Scenario& scenario, const std::string& policy) {
  Progress progress("searching for the best buckets");
  const Profile profile = scenario_profile(scenario);
  std::vector<std::string> passed_over;
  const BatchingPolicy& searched = policy_to_search(scenario, policy, profile, passed_over);
  BestBuckets best =
      best_buckets(scenario, searched, profile, PredictOptions{}.noise_runs, progress.callback());
  best.passed_over = passed_over;
  progress.done();
  Answer answer;
  answer.status = chosen_buckets(best).prediction.out_of_memory ? kAnswerIsNo : kDone;
  answer.text = [=](const Screen& screen) { return best_buckets_text(scenario, best, screen); };
  answer.json = [=] { return best_buckets_json(scenario, best); };
  answer.csv = [=] { return best_buckets_csv(best); };
  return answer;
}

Answer ask_buckets(const Request& request, const BucketsOptions& options) {
  if (!options.params.empty()) {
    if (!request.scenario.scenario.empty()) {
      request.fail("give a scenario or --params, not both");
    }
    if (options.best) {
      request.fail("--best needs a scenario, which has times");
    }
    return answer_of(read_bucket_cases(options.params));
  }
  const Scenario scenario = read_asked(request);
  if (scenario.model_is_unknown) {
    throw InputError("model.kind: {} is not there yet, and it holds the model",
                     printable(scenario.profile));
  }
  if (options.best) {
    return search_best(scenario, options.policy);
  }
  const BucketLists lists = bucket_lists(scenario);
  Answer answer;
  answer.text = [=](const Screen& screen) { return buckets_text(scenario, lists, screen); };
  answer.json = [=] { return buckets_json(scenario, lists); };
  answer.csv = [=] { return buckets_csv(scenario, lists); };
  return answer;
}

}  // namespace

Question buckets_question() {
  return question(
      "buckets",
      "the gradient buckets DDP makes, initial and rebuilt",
      kBucketsUsage,
      option_table(
          {scenario_options(),
           {option("best",
                   &BucketsOptions::best,
                   "search for the best cap and the best list of limits"),
            option("policy",
                   &BucketsOptions::policy,
                   "POLICY: of the scenario, for --best; else the first that fits into memory"),
            option("params", &BucketsOptions::params, "FILE or -: parameter lists (JSON)")}}),
      ask_buckets);
}

}  // namespace stepsim
