#include "sim/study/shape_cure.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "tests/approx.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/predict/predict_quietly.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

/// The host runs ahead, and passes take time in proportion to the tokens.
Scenario with_costs(const std::string& forward,
                    const std::string& backward,
                    const std::vector<std::string>& settings = {}) {
  const std::string mechanism = "{ kind = \"attention_plan\", forward = \"" + forward +
                                "\", backward = \"" + backward + "\" }";
  std::vector<std::string> overrides = {"host.step_sync=false", "times.tokens=128"};
  overrides.insert(overrides.end(), settings.begin(), settings.end());
  return parse_scenario(replaced(kShapesScenario, "MECHANISMS", mechanism), "s.toml", overrides);
}

ShapeCure cure_of(const Scenario& scenario) {
  return cheapest_cure(Job(scenario, scenario.policies.front(), scenario_profile(scenario)),
                       predict_quietly(scenario));
}

}  // namespace

TEST_CASE("the cure of new shapes takes what the cured policy is predicted to take") {
  const Scenario scenario = with_costs("300 ms", "50 ms");
  const ShapeCure cure = cure_of(scenario);
  CHECK(cure.now_ms == predict_quietly(scenario).shapes->epoch->step_ms);
  // A ladder of one length leaves the first meeting of one shape.
  CHECK(cure.key == "pad_to_lengths = [60]");
  Scenario cured = scenario;
  cured.policies = {scenario.policies.front().with_padding(1, {60})};
  const Prediction after = predict_quietly(cured);
  CHECK(after.shapes->builds == 2);
  CHECK(cure.cured_ms == Approx(after.shapes->epoch->step_ms).epsilon(1e-9));
  CHECK(cure.cured_ms < 0.5 * cure.now_ms);
}

TEST_CASE("the cure of a run whose steps are not like its epoch is that of the same steps") {
  // The first 40 of 160 steps have the short samples.
  std::string lengths;
  for (int i = 0; i < 1280; ++i) {
    lengths += fmt::format("{}{}", i > 0 ? "," : "", 4 + i / 24);
  }
  const Scenario scenario =
      with_costs("300 ms",
                 "50 ms",
                 {"data.samples=1280",
                  "data.lengths={values=[" + lengths + "]}",
                  "data.sampler={kind=\"distributed\",shuffle=false,seed=0}"});
  const ShapeCure cure = cure_of(scenario);
  REQUIRE(cure.key == "pad_to_lengths = [21, 39, 57]");
  Scenario cured = scenario;
  cured.policies = {scenario.policies.front().with_padding(1, {21, 39, 57})};
  CHECK(cure.cured_ms == Approx(predict_quietly(cured).shapes->epoch->step_ms).epsilon(1e-9));
}

TEST_CASE("where shapes cost next to nothing no cure is named") {
  const ShapeCure cure = cure_of(with_costs("1 us", "1 us"));
  CHECK(cure.key.empty());
  CHECK(cure.cured_ms == cure.now_ms);
}

TEST_CASE("planned shapes are met once by all ranks together, and fewer where they cost more") {
  std::vector<std::int64_t> builds;
  for (const std::string cost : {"1 us", "3 s"}) {
    Scenario scenario = with_costs(cost, "1 us");
    PolicySpec spec;
    spec.name = spec.kind = "planned_shapes";
    spec.parameters.set("batch_size", std::int64_t{4});
    scenario.policies = {make_policy(spec)};
    const ShapeSummary shapes = predict_quietly(scenario).shapes.value();
    CHECK(shapes.builds == 2 * shapes.distinct.back());
    CHECK(shapes.stalled_steps == shapes.distinct.back());
    builds.push_back(shapes.builds);
  }
  CHECK(builds[0] > 10);
  CHECK(builds[1] == 2);
}
