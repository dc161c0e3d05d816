#include "sim/report/validation/validation_report.h"

#include <tuple>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/utc_time.h"
#include "costmodel/records/shipped.h"
#include "sim/report/markdown.h"
#include "sim/report/validation/validation_markdown.h"
#include "sim/report/validation/validation_words.h"

using namespace stepsim;

namespace {

constexpr const char* kHostile = "a|b`c`<img>\n# x\x1b[31m*y*";

PolicyValidation policy(const std::string& name, double predicted, double measured, double error) {
  PolicyValidation result;
  result.policy = name;
  result.predicted.mean = predicted;
  result.measured_mean = measured;
  result.error_mean = predicted / measured - 1;
  result.repeats = 10;
  result.standard_error = error;
  result.predicted_parts.backward = predicted;
  result.measured_parts.backward = measured;
  return result;
}

Validation one_policy(double predicted, double measured, double error) {
  Validation validation;
  validation.policies = {policy("fixed", predicted, measured, error)};
  validation.recommended = "fixed";
  validation.truly_best = "fixed";
  return validation;
}

ValidationSources sources() {
  ValidationSources result;
  result.command = "stepsim validate x.toml --live live.jsonl";
  result.scenario.name = "x";
  result.scenario.path = "x.toml";
  result.profile.name = "p";
  result.profile.backend = "cpu";
  result.profile_path = "p.json";
  result.predictions_path = "prediction.json";
  result.predicted_at = "2026-11-20T19:37:25Z";
  RunRecord header;
  header.policy = "fixed";
  header.started_at = "2026-11-20T19:37:25Z";
  result.live = {{"live.jsonl", header}};
  return result;
}

}  // namespace

TEST_CASE("times in UTC are read and written") {
  CHECK(parse_utc("1970-01-01T00:00:00Z") == 0);
  CHECK(parse_utc("2026-11-20T19:37:25Z") == 1795203445);
  CHECK(parse_utc("2026-11-20T19:37:25.987+00:00") == 1795203445);
  CHECK(utc_text(1795203445) == "2026-11-20T19:37:25Z");
  for (const char* text : {"",
                           "now",
                           "2026-13-20T19:37:25Z",
                           "2026-02-30T00:00:00Z",
                           "2026-11-20T19:37:25+01:00",
                           "2026-11-20",
                           "-026-11-20T19:37:25Z"}) {
    CHECK_FALSE(parse_utc(text).has_value());
  }
}

TEST_CASE("a prediction file that was written after a live run began is told from one before") {
  ValidationSources from = sources();
  CHECK(prediction_time(from) == PredictionTime::Before);  // In the same second.
  CHECK(source_warnings(from).empty());
  from.predicted_at = "2026-11-20T19:37:26Z";
  CHECK(prediction_time(from) == PredictionTime::After);
  REQUIRE(source_warnings(from).size() == 1);
  CHECK(source_warnings(from)[0] ==
        "prediction.json was written at 2026-11-20T19:37:26Z, after the live run of "
        "2026-11-20T19:37:25Z");
  CHECK(verdict(one_policy(10, 10, 0.01), from, 0.1) ==
        "prediction made after the live run: every mean step is within 10.0 % of the measured one");
  from.live[0].header.started_at = "";
  CHECK(prediction_time(from) == PredictionTime::Unknown);
  from.predictions_path = "";
  CHECK(prediction_time(from) == PredictionTime::Now);
}

TEST_CASE("other profiles, devices and emulated runs are said") {
  ValidationSources from = sources();
  from.predicted_with = "q";
  from.live.push_back(from.live[0]);
  from.live[0].header.device = "A";
  from.live[1].header.device = "B";
  from.live[1].header.backend = "emulated";
  const std::vector<std::string> warnings = source_warnings(from);
  REQUIRE(warnings.size() == 3);
  CHECK(warnings[0] == "predicted with profile 'q'; the sentinel is compared with that of 'p'");
  CHECK(warnings[1] == "the live runs are of different devices: A, B");
  CHECK(warnings[2].find("EMULATED") == 0);
  from.predicted_with = from.profile.name;
  from.predicted_with_id = "0a";
  from.profile.id.text = "0b";
  CHECK(source_warnings(from)[0] ==
        "predicted with profile 'p' as it was then (id 0a); its file has changed since (id 0b)");
}

TEST_CASE("an error on the run that the profile was fitted to is no prediction's") {
  ValidationSources from = sources();
  (*from.profile.provenance)["recorded"]["records"] = {
      {{"policy", "fixed"}, {"started_at", "2026-11-20T00:00:00Z"}}, "damaged"};
  CHECK(source_warnings(from).empty());
  from.live[0].header.started_at = "2026-11-20T00:00:00Z";
  from.predictions_path = "";
  REQUIRE(source_warnings(from).size() == 1);
  CHECK(source_warnings(from)[0] ==
        "live.jsonl: the profile was fitted to this very run, so that its error is of the fit and "
        "not of a prediction");
  *from.profile.provenance = {{"recorded", 3}};
  CHECK(source_warnings(from).empty());
}

TEST_CASE("recorded trainings are recorded again, not run by stepcal") {
  ValidationSources from = sources();
  *from.live[0].header.versions = {{"torch", "2.5"}};
  *from.profile.provenance = {{"recorded", 3}};
  CHECK(next_command(one_policy(11.2, 10, 0.04), from, 0.1) ==
        "stepsim plan x.toml --out-dir plans --profile p.json");
  CHECK(next_command(one_policy(12, 10, 0.01), from, 0.1) ==
        "stepcal import run-record run.jsonl --plan plan.jsonl --profile p.json");
  *from.profile.provenance = {{"recorded", {{"command", "stepcal import run-record a.jsonl"}}}};
  CHECK(next_command(one_policy(12, 10, 0.01), from, 0.1) ==
        "stepcal import run-record run.jsonl --profile p.json");
}

TEST_CASE("a prediction that does not hold names the policy, the part and what to do") {
  const Validation off = one_policy(12, 10, 0.01);
  CHECK_FALSE(off.holds(0.1));
  CHECK(verdict(off, sources(), 0.1) ==
        "the mean step is off by more than 10.0 %: fixed +20.0 %; most of it in backward: +20.0 "
        "points");
  CHECK(certainty(off, 0.1) == "the measured mean is not in its 90 % interval");
  REQUIRE(advice(off, sources(), 0.1).size() == 1);
  CHECK(advice(off, sources(), 0.1)[0] ==
        "fixed: backward is predicted too long: recalibrate with the plans of this scenario");
  CHECK(next_command(off, sources(), 0.1) ==
        "stepcal grid plans/*.jsonl --out shapes.json && python3 -m stepsim.torch.measure "
        "shapes.json --out samples.jsonl && stepcal fit samples.jsonl --out p.json");
}

TEST_CASE("a verdict and how sure it is do not contradict each other") {
  const Validation open = one_policy(11.2, 10, 0.04);
  CHECK(verdict(open, sources(), 0.1).starts_with("in these live runs the mean step is off by "));
  CHECK(certainty(open, 0.1).find("; the live runs differ too much to tell whether") !=
        std::string::npos);
  Validation once = one_policy(18.6, 10, 0.04);
  once.policies.front().standard_error.reset();
  CHECK(
      verdict(once, sources(), 0.1)
          .starts_with("in this one pass the mean step is off by more than 10.0 %: fixed +86.0 %"));
  CHECK(certainty(once, 0.1).find("differ too much") == std::string::npos);
  CHECK(certainty(once, 0.1).find("; one pass alone does not tell how it repeats, and so not "
                                  "whether the error is within 10.0 %") != std::string::npos);
}

TEST_CASE("costs that are measured again take the place of no shipped profile") {
  const Validation off = one_policy(12, 10, 0.01);
  ValidationSources from = sources();
  from.profile_path = profile_path("cpu_epyc_2core_2ranks");
  CHECK(from.profile_path.ends_with("scenarios/profiles/cpu_epyc_2core_2ranks.json"));
  CHECK(next_command(off, from, 0.1).ends_with("stepcal fit samples.jsonl --out mine.json"));
  *from.profile.provenance = {{"recorded", 3}};
  CHECK(next_command(off, from, 0.1).ends_with("--plan plan.jsonl --profile mine.json"));
}

TEST_CASE("live runs that cannot tell the side of the bound ask for more repeats") {
  // 12 % +-8 %: the bound of 10 % is inside. A quarter of the bound: 10 * (8 / 2.5)^2 passes.
  const Validation open = one_policy(11.2, 10, 0.04);
  REQUIRE(advice(open, sources(), 0.1).size() == 1);
  CHECK(advice(open, sources(), 0.1)[0].find("more repeats: the live runs tell the mean of fixed "
                                             "to +-8.0 %; about 103 passes") == 0);
  ValidationSources from = sources();
  CHECK(next_command(open, from, 0.1).starts_with("stepsim plan x.toml"));  // The user's training.
  *from.live[0].header.versions = {{"trained_by", "stepsim_live.py"}};
  CHECK(next_command(open, from, 0.1) ==
        "python3 -m stepsim.torch.live plans/*.jsonl --repeats 103 --out-dir live");
  // 12 % +-20 %: hundreds of passes would help nobody.
  CHECK(advice(one_policy(11.2, 10, 0.1), sources(), 0.1)[0].find("they differ too much") !=
        std::string::npos);
  CHECK(advice(one_policy(10, 10, 0.04), sources(), 0.1).empty());
  CHECK(advice(one_policy(10, 10, 0.06), sources(), 0.1).size() == 1);  // Holds, but blindly.
}

TEST_CASE("the verdict names the three worst policies; what is shown goes before what is open") {
  Validation four = one_policy(11.5, 10, 0.01);
  for (const auto& [name, predicted, error] :
       {std::tuple("b", 12.5, 0.01), std::tuple("c", 8.0, 0.01), std::tuple("d", 13.0, 0.2)}) {
    four.policies.push_back(policy(name, predicted, 10, error));
  }
  CHECK(
      verdict(four, sources(), 0.1) ==
      "the mean step of 4 of 4 policies is off by more than 10.0 %: d +30.0 %, b +25.0 %, c -20.0 "
      "% and 1 more; most of it in backward: +30.0 points of d");
  REQUIRE(advice(four, sources(), 0.1).size() == 1);
  CHECK(advice(four, sources(), 0.1)[0].find("b: backward is predicted too long") == 0);
}

TEST_CASE("a machine that has drifted comes before recalibrating for a part") {
  Validation drifted = one_policy(12, 10, 0.01);
  drifted.machine_speed = 0.9;
  CHECK(machine_line(drifted, sources()) ==
        "10.0 % faster than in its calibration, by the sentinel, a step that both timed; the "
        "errors hold that, too");
  REQUIRE(advice(drifted, sources(), 0.1).size() == 1);
  CHECK(advice(drifted, sources(), 0.1)[0].find("the machine has drifted by -10.0 %") == 0);
  CHECK(next_command(drifted, sources(), 0.1).find("stepcal grid plans/*.jsonl") == 0);
  ValidationSources noisy = sources();
  noisy.profile.noise.drift = 0.06;  // 10 % is within twice that.
  CHECK(machine_line(drifted, noisy).empty());
  CHECK(advice(drifted, noisy, 0.1)[0].find("fixed: backward") == 0);
}

TEST_CASE("what holds leads on to the blame of the recommended policy") {
  ValidationSources from = sources();
  from.scenario.path = "my x.toml";
  CHECK(next_command(one_policy(10, 10, 0.01), from, 0.1) ==
        "stepsim blame 'my x.toml' --policy fixed --profile p.json");
  from.scenario.overrides = {{"cluster.profile", "p.json"}, {"scenario.seed", "3"}};
  CHECK(next_command(one_policy(10, 10, 0.01), from, 0.1) ==
        "stepsim blame 'my x.toml' --policy fixed --set cluster.profile=p.json --set "
        "scenario.seed=3");
}

TEST_CASE("text of others is no markup of the report") {
  CHECK(markdown_text(kHostile) == "a\\|b\\`c\\`&lt;img&gt;\\\\x0a# x\\\\x1b\\[31m\\*y\\*");
  CHECK(markdown_text("token_budget") == "token_budget");
  CHECK(markdown_text("_x_") == "\\_x\\_");
  CHECK(markdown_code("a\n```\nb") == "````\na\n```\nb\n````\n");
  Table table({"policy", "ms"});
  table.add({"a|b", "1.5"});
  table.add({"cd", "10.25"});
  CHECK(markdown_table(table) ==
        "| policy |    ms |\n"
        "| ------ | ----: |\n"
        "| a\\|b   |   1.5 |\n"
        "| cd     | 10.25 |\n");
}

TEST_CASE("the report stays one page of Markdown with hostile names") {
  Validation validation = one_policy(12, 10, 0.01);
  validation.policies[0].policy = kHostile;
  validation.recommended = kHostile;
  validation.warnings = {kHostile};
  ValidationSources from = sources();
  from.scenario.name = kHostile;
  from.scenario.path = kHostile;
  from.profile.device = kHostile;
  *from.profile.provenance = {{"command", kHostile}, {"versions", {{"k", kHostile}}}};
  from.live[0].path = kHostile;
  from.command = std::string("stepsim validate ```") + kHostile;
  const std::string text = validation_markdown(validation, from, 0.1);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("\n# x") == std::string::npos);
  const std::string outside = text.substr(0, text.find("````"));
  CHECK(outside.find("<img>") == std::string::npos);
  CHECK(text.find("\n````\nstepsim validate ```a|b") != std::string::npos);
  CHECK(text.find("# Prediction and live run: a\\|b") == 0);
}

TEST_CASE("the report says what was compared, the verdict and the next command") {
  ValidationSources from = sources();
  from.profile.device = "Xeon";
  *from.profile.provenance = {{"fitted_at", "2026-11-19T00:00:00Z"},
                              {"fit_command", "stepcal fit samples.jsonl"},
                              {"versions", {{"eigen", "3.4.0"}, {"threads", 1}}}};
  *from.live[0].header.versions = {{"torch", "2.5"}};
  const std::string text = validation_markdown(one_policy(12, 10, 0.01), from, 0.1);
  for (const char* part : {"**Verdict: the mean step is off by more than 10.0 %: fixed +20.0 %",
                           "- **scenario**: x (x.toml)\n",
                           "- **profile**: p (p.json)\n- **profile's device**: Xeon\n"
                           "- **profile made**: 2026-11-19T00:00:00Z\n"
                           "- **profile's command**: stepcal fit samples.jsonl\n"
                           "- **profile's versions**: eigen: 3.4.0, threads: 1\n",
                           "- **prediction made**: 2026-11-20T19:37:25Z\n",
                           "- **live run's versions**: torch: 2.5\n",
                           "| live.jsonl  | fixed  |",
                           "stepsim validate x.toml --live live.jsonl\n",
                           "fixed: predicted 12.000 ms, measured 10.000 ms, an error of +20.0 %, "
                           "real: the live runs tell +-2.0 %. Most of it: backward (+20.0 points)",
                           "```\nstepcal grid plans/*.jsonl"}) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, part, "\n", text);
  }
}
