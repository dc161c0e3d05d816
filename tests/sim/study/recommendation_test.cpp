#include "sim/study/recommendation.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/approx.h"
#include "tests/sim/batching/make_policy.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

/// A policy with 1000 useful tokens a step whose draws take these milliseconds at these drifts.
Prediction prediction(const std::string& policy,
                      const std::vector<double>& step_ms,
                      const std::vector<double>& drifts = {}) {
  Prediction result;
  result.policy = policy;
  result.summary.useful_tokens_per_step = 1000;
  result.summary.step_time_ms.mean = step_ms.front();
  for (std::size_t i = 0; i < step_ms.size(); ++i) {
    result.draws.push_back({step_ms[i], drifts.empty() ? 1 : drifts[i]});
  }
  return result;
}

/// A scenario of these policies. The reference, if there is one, has lengths of its own.
Scenario scenario_of(const std::vector<Prediction>& predictions,
                     const std::string& reference = "none") {
  Scenario scenario;
  for (const Prediction& one : predictions) {
    PolicySpec policy;
    policy.name = one.policy;
    policy.kind = "fixed";
    policy.parameters = {{"batch_size", 1}};
    if (one.policy == reference) {
      policy.lengths.emplace();
    }
    scenario.policies.push_back(make_policy(policy));
  }
  return scenario;
}

Recommendation recommend(const std::vector<Prediction>& predictions) {
  return recommend(scenario_of(predictions), predictions);
}

}  // namespace

TEST_CASE("a policy that is faster in every draw is first in all of them") {
  const auto result = recommend({prediction("slow", {20, 22}), prediction("fast", {10, 12})});
  REQUIRE(result.choices.size() == 2);
  CHECK(result.choices[0].policy == "fast");
  CHECK(result.choices[0].first_share == 1);
  CHECK(result.choices[1].first_share == 0);
  CHECK(result.gain == Approx(1));
  CHECK(recommendation_text(result).find("more than 99 % likely to be the fastest.") !=
        std::string::npos);
}

TEST_CASE("where all policies are references there is none to choose, whatever the memory") {
  std::vector<Prediction> predictions = {prediction("own data", {10})};
  const Scenario references = scenario_of(predictions, "own data");
  CHECK(recommendation_text(references, predictions) ==
        "All policies of this scenario are reference cases: there is none to choose.");
  predictions.front().out_of_memory.emplace();
  CHECK(recommendation_text(scenario_of(predictions), predictions) ==
        "No policy of this scenario fits into memory on its own data; stepsim sweep with "
        "--over parallel=ddp,zero1,fsdp2 says which sharding does.");
}

TEST_CASE("shares count every combination of draws, ties by half") {
  // Against 11 and 20: 10 wins both, 12 wins one of two: three of four.
  const auto two = recommend({prediction("a", {10, 12}), prediction("b", {11, 20})});
  CHECK(two.choices[0].first_share == Approx(0.75));
  CHECK(two.choices[1].first_share == Approx(0.25));
  const auto same = recommend({prediction("a", {10, 12}), prediction("b", {10, 12})});
  CHECK(same.choices[0].first_share == Approx(0.5));
  const auto three =
      recommend({prediction("a", {10, 14}), prediction("b", {11, 13}), prediction("c", {12, 15})});
  double sum = 0;
  for (const Choice& choice : three.choices) {
    sum += choice.first_share;
  }
  CHECK(sum == Approx(1));
}

TEST_CASE("the drift of the machine is the same for all policies") {
  const auto result =
      recommend({prediction("a", {10, 20}, {1, 2}), prediction("b", {11, 22}, {1, 2})});
  CHECK(result.choices[0].first_share == 1);
  CHECK(result.gain_interval.first == Approx(0.1));
  CHECK(result.gain_interval.second == Approx(0.1));
}

TEST_CASE("what the profile has wrong for both is no doubt about a gain") {
  // 10 ms or 20 ms, and always a tenth more: each alone has a wide interval, their ratio has none.
  Prediction first = prediction("a", {10, 20});
  Prediction second = prediction("a", {11, 22});
  first.paired_step_ms = {10, 20};
  second.paired_step_ms = {11, 22};
  const Gain gain = paired_gain(first, second);
  CHECK(gain.gain == Approx(0.1));
  CHECK(gain.interval.first == Approx(0.1));
  CHECK(gain.interval.second == Approx(0.1));
  CHECK(gain.faster_share == 1);
  CHECK(gain.is_certain());
  CHECK_FALSE(paired_gain(second, first).is_certain());
}

TEST_CASE("the interval of a gain holds the gain, also where every draw has less") {
  // 10 against 12 ms, and in the draws, which have an error that only lengthens the first, 11.
  Prediction first = prediction("a", {10});
  Prediction second = prediction("a", {12});
  first.paired_step_ms.assign(10, 11);
  second.paired_step_ms.assign(10, 12);
  const Gain gain = paired_gain(first, second);
  CHECK(gain.gain == Approx(0.2));
  CHECK(gain.interval.first == Approx(12.0 / 11 - 1));
  CHECK(gain.interval.second == Approx(0.2));
  const Gain loss = paired_gain(second, first);
  CHECK(loss.interval.first == Approx(10.0 / 12 - 1));
  CHECK(loss.interval.second == Approx(11.0 / 12 - 1));
}

TEST_CASE("a gain is told from none in nine of ten draws, and from one percent on") {
  Prediction first = prediction("a", {10});
  Prediction second = prediction("a", {11});
  first.paired_step_ms.assign(10, 10);
  second.paired_step_ms.assign(10, 11);
  second.paired_step_ms[0] = 9;
  CHECK(paired_gain(first, second).is_certain());
  second.paired_step_ms[1] = 9;
  CHECK_FALSE(paired_gain(first, second).is_certain());
  second.paired_step_ms.assign(10, 10);  // As fast in every draw: half of the ties are won.
  CHECK(paired_gain(first, second).faster_share == 0.5);
  second = prediction("a", {10.09});
  second.paired_step_ms.assign(10, 10.09);
  CHECK_FALSE(paired_gain(first, second).is_certain());
}

TEST_CASE("an unsure recommendation says what to benchmark") {
  const std::vector<Prediction> unsure = {
      prediction("a, b", {10, 12}), prediction("c", {10.5, 12}), prediction("d", {90, 95})};
  CHECK(recommendation_text(scenario_of(unsure), unsure) ==
        "Use 'a, b': 100000 useful tokens/s, +5.0 % over c (90 % interval -10.6 to +17.8 %) and "
        "+800.0 % over d; 62 % likely to be the fastest; benchmark 'a, b' and c.");
}

TEST_CASE("an answer that changes nothing says what could be gained at most") {
  const auto text = [](double gain, double low, double high) {
    Gain of_fastest;
    of_fastest.gain = gain;
    of_fastest.interval = {low, high};
    return nothing_to_gain_text(of_fastest);
  };
  CHECK(text(0, 0, 0) == "Nothing to gain here");
  CHECK(text(-0.01, -0.02, 0.01) == "Nothing to gain here");
  CHECK(text(0.0002, 0.0001, 0.0003) == "Nothing to gain here");
  CHECK(text(0.003, 0.002, 0.006) == "Nothing to gain here, at most 0.6 %");
  CHECK(text(0.006, 0.006, 0.006) == "Nothing to gain here, at most 0.6 %");
  CHECK(text(0.03, -0.02, 0.084) == "Nothing certain to gain here, at most 8.4 %");
}

TEST_CASE("policies that nobody could tell apart are no choice that gains anything") {
  const std::vector<Prediction> flat = {
      prediction("a", {10, 12}), prediction("b", {10.06, 12}), prediction("c", {10.03, 12})};
  const Recommendation all = recommend(flat);
  CHECK(all.is_flat());
  CHECK(all.alike() == 3);
  CHECK(all.alike_share() > 0.95);  // Three that tie count a quarter each.
  CHECK(recommendation_text(all) ==
        "Nothing to gain here: no policy is more than 0.6 % faster than another (a: 100000 useful "
        "tokens/s).");
  CHECK(recommendation_json(all).at("nothing_to_gain") == true);
  // What runs already is kept where no other gains anything.
  const Scenario scenario = scenario_of(flat);
  CHECK(recommended(scenario, flat, "b")->policy == "b");
  CHECK(recommendation_text(scenario, flat, "b").find("(b: 99404 useful") != std::string::npos);
  CHECK(recommended(scenario, flat, "no such")->policy == "a");
  // One that is slower is told from those that are alike, together.
  const std::vector<Prediction> mixed = {
      prediction("slow", {20, 22}), prediction("a", {10, 12}), prediction("b", {10.06, 12.06})};
  CHECK(recommendation_text(scenario_of(mixed), mixed) ==
        "Use a: 100000 useful tokens/s, as b within 1 %, +100.0 % over slow (90 % interval +69.2 "
        "to +117.0 %); more than 99 % likely that one of them is the fastest.");
  CHECK(recommended(scenario_of(mixed), mixed, "slow")->policy == "a");
  const Recommendation kept = recommend(scenario_of(mixed), mixed, "b");
  CHECK(kept.choices.front().policy == "b");
  CHECK(kept.gain_of_fastest(kept.choices.front()) == Approx(0.006));
}

TEST_CASE("neither references nor what does not fit is a choice") {
  std::vector<Prediction> all = {
      prediction("reference", {1, 1}), prediction("huge", {2, 2}), prediction("fixed", {10, 12})};
  all[1].out_of_memory = OutOfMemory{};
  const Scenario scenario = scenario_of(all, "reference");
  CHECK(recommended(scenario, all)->policy == "fixed");
  CHECK(recommendation_text(scenario, all) == "Use fixed: 100000 useful tokens/s.");
  all[2].out_of_memory = all[1].out_of_memory;
  CHECK(recommended(scenario, all) == nullptr);
  CHECK(recommendation_json(recommend(scenario, all)).at("policy").is_null());
}

TEST_CASE("without draws nothing is said of certainty") {
  std::vector<Prediction> all = {prediction("a", {10}), prediction("b", {11})};
  all[0].draws.clear();
  all[1].draws.clear();
  CHECK(recommendation_text(scenario_of(all), all) ==
        "Use a: 100000 useful tokens/s, +10.0 % over b.");
}

TEST_CASE("what a policy asks of the training loop is said beside it") {
  Prediction budget = prediction("budget", {10});
  Scenario scenario = scenario_of({budget});
  CHECK(training_needs(scenario, budget).empty());  // Its epoch was not counted.
  TrainingEffects effects;
  effects.samples = 1003;
  effects.fewest_steps = effects.most_steps = 31;
  budget.training = effects;
  CHECK(training_needs(scenario, budget).empty());
  budget.training->most_steps = 38;
  REQUIRE(training_needs(scenario, budget).size() == 1);
  CHECK(training_needs(scenario, budget)[0].starts_with(
      "ranks have 31 to 38 batches an epoch, and a plain DDP loop hangs when the first rank is "
      "through: stepsim.torch.BatchSampler gives every rank as many"));
  scenario.ddp.join_steps = {31, 38};
  CHECK(training_needs(scenario, budget).empty());
  budget.training->sample_skew = 1.2;
  budget.training->lost_samples = 3;
  REQUIRE(training_needs(scenario, budget).size() == 2);
  CHECK(training_needs(scenario, budget)[0].starts_with(
      "ranks hold different numbers of samples: multiply each rank's loss by ranks x own / all"));
  CHECK(training_needs(scenario, budget)[1] == "3 of 1003 samples are in no batch of an epoch");
  PolicySpec weighted;
  weighted.name = "budget";
  weighted.kind = "fixed";
  weighted.parameters = {{"batch_size", 1}};
  weighted.weighting = LossWeighting::Sample;
  scenario.policies = {make_policy(weighted)};
  CHECK(training_needs(scenario, budget).size() == 1);
}

TEST_CASE("without steps that confirm the costs, how likely something is holds by their errors") {
  CHECK(likelihood_text(0.97, false) == "97 % likely");
  CHECK(likelihood_text(0.999, true) == "by the profile's own errors more than 99 % likely");
  Gain gain;
  gain.faster_share = 1;
  CHECK(certainty_text(gain).ends_with("%, more than 99 % likely to be faster"));
  gain.unconfirmed = true;
  CHECK(certainty_text(gain).ends_with("own errors more than 99 % likely to be faster"));
}
