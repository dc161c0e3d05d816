// Memory over a step, as predictions show it.
#include "sim/predict/memory_curve.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/json.h"
#include "sim/report/text.h"
#include "sim/scenario/scenario.h"
#include "tests/source_root.h"

using namespace stepsim;

namespace {

Scenario skewed(const std::vector<std::string>& overrides) {
  return read_scenario(test::source_root() + "/scenarios/token_skew.toml", overrides);
}

Prediction predicted(const Scenario& scenario) {
  PredictOptions options;
  options.noise_runs = 0;
  options.memory_curve = true;
  return predict(scenario, scenario.policies.front(), scenario_profile(scenario), options);
}

const std::vector<std::string> kSharded = {"parallel.kind=fsdp2"};

}  // namespace

TEST_CASE("the curve's peak is the largest memory of the steady steps, and times go on") {
  for (const char* more : {"ddp.accumulation_steps=1", "ddp.accumulation_steps=5"}) {
    CAPTURE(more);
    const Scenario scenario = skewed({kSharded.front(), more});
    const Prediction prediction = predicted(scenario);
    REQUIRE(prediction.memory_curve);
    const MemoryCurve& curve = *prediction.memory_curve;
    const MemoryPoint& peak = curve.points[static_cast<std::size_t>(curve.peak)];
    double most = 0;
    for (const RankStepResult& row : prediction.steps) {
      most = row.step >= scenario.warmup_steps ? std::max(most, row.peak_memory_mib) : most;
    }
    CHECK(peak.total_mib() == doctest::Approx(most).epsilon(1e-9));
    const auto row = std::ranges::find_if(prediction.steps, [&](const RankStepResult& one) {
      return one.step == curve.step && one.rank == curve.rank;
    });
    CHECK(row->peak_memory_mib == doctest::Approx(most).epsilon(1e-9));
    CHECK(std::ranges::is_sorted(curve.points, {}, &MemoryPoint::ms));
    CHECK(curve.points.front().ms == 0);
    CHECK(curve.points.back().ms > row->step_ms / 4);
    CHECK(curve.points.back().ms < row->step_ms);
    CHECK(curve.points.back().micro_batch == scenario.ddp.accumulation_steps - 1);
    for (const MemoryPoint& point : curve.points) {
      CHECK(point.mib.size() == curve.parts.size());
    }
  }
}

TEST_CASE("what is kept on all ranks has no curve") {
  CHECK_FALSE(predicted(skewed({})).memory_curve);
}

TEST_CASE("the report says when the peak is reached and what it consists of") {
  const Scenario scenario = skewed(kSharded);
  const Prediction prediction = predicted(scenario);
  const std::string text = run_text(scenario, prediction, {}, {});
  CHECK(text.find(" ms of step ") != std::string::npos);
  CHECK(text.find("in the backward\n") != std::string::npos);
  const auto json = prediction_json({prediction}, StepRows::None)["predictions"][0];
  const auto& curve = json.at("memory_curve");
  CHECK(curve.at("points").size() == prediction.memory_curve->points.size());
  CHECK(curve.at("points")[0].at("mib").size() == curve.at("parts").size());
  CHECK(curve.at("points")[0].at("pass") == "forward");
}
