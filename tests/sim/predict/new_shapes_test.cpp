// What first meetings of shapes do to a run: who pays, when, and what hides it.
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/shape_stalls.h"
#include "sim/predict/predict.h"
#include "sim/study/shape_payback.h"
#include "tests/approx.h"
#include "tests/sim/predict/predict_quietly.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

Prediction predicted(const std::string& mechanisms,
                     const std::vector<std::string>& overrides = {},
                     bool engine = false) {
  const Scenario scenario =
      parse_scenario(replaced(kShapesScenario, "MECHANISMS", mechanisms), "s.toml", overrides);
  return predict(scenario,
                 scenario.policies.front(),
                 scenario_profile(scenario),
                 {.noise_runs = 0, .engine = engine});
}

/// All times of all ranks and steps.
std::vector<double> times(const Prediction& prediction) {
  std::vector<double> result;
  for (const RankStepResult& row : prediction.steps) {
    result.insert(result.end(),
                  {row.start_ms, row.step_ms, row.forward_ms, row.backward_ms, row.exposed_ms});
  }
  return result;
}

std::string error_of_mechanisms(const std::string& mechanisms, const std::string& more = "") {
  return test::error_of([&] {
    (void)parse_scenario(replaced(kShapesScenario, "MECHANISMS", mechanisms) + more, "s.toml");
  });
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kPlan = R"({ kind = "attention_plan", forward = "30 ms", backward = "50 ms" })";

}  // namespace

TEST_CASE("ranks that meet new shapes in turn stall in turn, together they stall once") {
  ShapeCost cost;
  cost.forward_seconds = 1;
  const std::vector<ShapeCost> costs = {cost};
  const auto builds = [&](const std::vector<BatchShape>& shapes) {
    std::vector<int> result;
    for (const ShapeStall& stall : shape_stalls(costs, shapes, 2, 1)) {
      result.push_back(stall.builds);
    }
    return result;
  };
  const BatchShape a{4, 10, 40};
  const BatchShape b{4, 11, 44};
  // By step, then rank.
  CHECK(builds({a, b, b, a}) == std::vector{1, 1, 1, 1});
  CHECK(builds({a, a, a, a}) == std::vector{1, 1, 0, 0});
  cost.shared = true;
  const std::vector<ShapeCost> shared = {cost};
  const auto stalls = shape_stalls(shared, std::vector{a, a, b, a, a, b}, 2, 1);
  std::vector<int> of_shared;
  for (const ShapeStall& stall : stalls) {
    of_shared.push_back(stall.builds);
  }
  CHECK(of_shared == std::vector{1, 1, 1, 0, 0, 0});
}

TEST_CASE("new shapes that cost nothing change no time") {
  const std::vector<double> without = times(predicted(""));
  CHECK(times(predicted(R"({ kind = "attention_plan", forward = "0 ms", backward = "0 ms" })")) ==
        without);
  CHECK(times(predicted(R"({ kind = "compile", mode = "static", forward = "0 ms" })")) == without);
  CHECK(times(predicted(kPlan, {"new_shapes.warm_up=true"})) == without);
  CHECK(times(predicted(kPlan)) != without);
}

TEST_CASE("the recurrence and the engine agree on first meetings to the nanosecond") {
  for (const std::string& mechanism :
       {kPlan,
        std::string(R"({ kind = "convolution", forward = "3 ms", forward_device = "9 ms" })")}) {
    for (const char* zero : {"ddp.set_to_none=true", "ddp.set_to_none=false"}) {
      for (const char* sync : {"host.step_sync=true", "host.step_sync=false"}) {
        CHECK(times(predicted(mechanism, {zero, sync}, true)) ==
              times(predicted(mechanism, {zero, sync})));
      }
    }
  }
}

TEST_CASE("a host that waits after each step pays the whole price") {
  const Prediction prediction = predicted(kPlan, {"cluster.ranks=1"});
  const ShapeSummary& shapes = prediction.shapes.value();
  double lost = 0;
  for (const double ms : shapes.lost_ms) {
    lost += ms;
  }
  CHECK(shapes.builds == shapes.stalled_steps);
  // The host starts to build when the device has caught up, or 20 ms of backward before that.
  CHECK(lost <= 80.0 * static_cast<double>(shapes.builds));
  CHECK(lost >= 60.0 * static_cast<double>(shapes.builds));
  CHECK(shapes.distinct.back() == shapes.builds);
  CHECK(shapes.run_ms == Approx(prediction.summary.step_time_ms.mean));
  CHECK(shapes.run_ms - shapes.warm_ms == Approx(lost / 40));
}

TEST_CASE("ranks with equal batches pay once, not twice") {
  const char* equal = "data.lengths={ uniform = [32, 32] }";
  const ShapeSummary one = predicted(kPlan, {equal, "cluster.ranks=1"}).shapes.value();
  const ShapeSummary two = predicted(kPlan, {equal, "cluster.ranks=2"}).shapes.value();
  CHECK(one.stalled_steps == 1);
  CHECK(two.stalled_steps == 1);
  CHECK(two.builds == 2);
  CHECK(two.lost_ms.front() == Approx(one.lost_ms.front()).epsilon(0.01));
}

TEST_CASE("more entries are never slower, and shared caches neither") {
  double before = 1e9;
  for (const char* entries : {"entries = 1, ", "entries = 3, ", "entries = 12, ", ""}) {
    const double now =
        predicted(fmt::format("{{ {}kind = \"attention_plan\", forward = \"30 ms\" }}", entries))
            .summary.step_time_ms.mean;
    CHECK(now <= before);
    before = now;
  }
  const double shared =
      predicted(R"({ shared = true, kind = "attention_plan", forward = "30 ms" })")
          .summary.step_time_ms.mean;
  CHECK(shared <= before);
}

TEST_CASE("a compiler that gives up makes passes longer for good") {
  const Prediction prediction = predicted(
      R"({ kind = "compile", mode = "static", recompile_limit = 2, forward = "0 ms", uncompiled_factor = 2 })");
  CHECK(prediction.shapes->gave_up);
  CHECK(prediction.steps.back().forward_ms ==
        Approx(2 * prediction.steps.front().forward_ms).epsilon(0.05));
}

TEST_CASE("a simulated epoch and its estimate agree") {
  const ShapeSummary shapes = predicted(kPlan).shapes.value();
  const EpochShapes& epoch = shapes.epoch.value();
  CHECK(epoch.steps == 40);  // 320 samples, 2 ranks of 4: the simulated steps.
  CHECK(epoch.builds == shapes.builds);
  CHECK(epoch.stalled_steps == shapes.stalled_steps);
  CHECK(epoch.step_ms == Approx(shapes.run_ms));
}

TEST_CASE("a policy has paid for its shapes when it has trained as many tokens a second") {
  const auto made = [](std::vector<double> step_ms, std::int64_t tokens, double warm) {
    Prediction prediction;
    prediction.shapes.emplace();
    prediction.shapes->step_ms = step_ms;
    prediction.shapes->warm_ms = warm;
    prediction.summary.useful_tokens_per_step = static_cast<double>(tokens);
    for (std::size_t i = 0; i < step_ms.size(); ++i) {
      prediction.shapes->lost_ms.push_back(step_ms[i] - warm);
      RankStepResult row;
      row.step = static_cast<int>(i);
      row.useful_tokens = tokens;
      prediction.steps.push_back(row);
    }
    return prediction;
  };
  // 10 tokens in 10 ms against 20, the first step of which takes 50 ms: even after 4 steps.
  const Prediction plain = made({10, 10, 10, 10, 10, 10}, 10, 10);
  const Prediction costly = made({50, 10, 10, 10, 10, 10}, 20, 10);
  const Prediction hopeless = made({50, 10, 10, 10, 10, 10}, 9, 10);
  const Prediction later = made({90, 10, 10, 10, 10, 10}, 20, 10);
  const auto paybacks = shape_paybacks(std::vector{plain, costly, hopeless, later});
  CHECK(paybacks[0].is_reference);
  CHECK(paybacks[1].steps == 4);
  CHECK_FALSE(paybacks[2].steps);
  CHECK(paybacks[2].slower_warm);
  CHECK_FALSE(paybacks[3].steps);
  CHECK_FALSE(paybacks[3].slower_warm);
  CHECK(shape_paybacks(std::vector<Prediction>()).empty());
}

TEST_CASE("bad input about new shapes is refused where it stands") {
  CHECK(mentions(error_of_mechanisms("{ forward = \"1 ms\" }"), "kind"));
  CHECK(mentions(error_of_mechanisms("{ kind = \"atention_plan\", forward = \"1 ms\" }"),
                 "did you mean 'attention_plan'"));
  CHECK(mentions(error_of_mechanisms("{ kind = \"attention_plan\" }"), "says nothing of what"));
  CHECK(mentions(error_of_mechanisms("{ kind = \"other\", forward = \"-1 ms\" }"), "-1 ms"));
  CHECK(mentions(error_of_mechanisms("{ kind = \"other\", forward = \"1 ms\", entries = 0 }"),
                 "entries"));
  CHECK(mentions(
      error_of_mechanisms("{ kind = \"other\", forward = \"1 ms\", eviction = \"oldest\" }"),
      "needs entries"));
  CHECK(mentions(error_of_mechanisms("{ kind = \"other\", forward = \"1 ms\", mode = \"static\" }"),
                 "only applies to kind = \"compile\""));
  CHECK(mentions(error_of_mechanisms("{ kind = \"compile\", forward = \"1 ms\", entries = 4 }"),
                 "recompile_limit"));
  CHECK(mentions(error_of_mechanisms(kPlan, "torch = \"2.8\"\n"), "since 2.11"));
  CHECK(mentions(error_of_mechanisms(kPlan, "torch = \"2.11\"\ncudnn = \"9.13.1\"\n"), "9.15.0"));
  CHECK(mentions(error_of_mechanisms(kPlan, "compute_capability = \"8.0\"\n"), "9.x and 10.x"));
  CHECK(error_of_mechanisms(kPlan,
                            "torch = \"2.11\"\ncudnn = \"9.19\"\ncompute_capability = \"9.0\"\n") ==
        "no error");
  CHECK(error_of_mechanisms(kPlan, "torch = \"2.5.0\"\n") == "no error");
  CHECK(error_of_mechanisms(kPlan, "torch = \"2.8\"\ncudnn_attention = true\n") == "no error");
  CHECK(mentions(
      error_of_mechanisms("{ kind = \"compile\", forward = \"1 s\" }", "torch = \"1.13\"\n"),
      "it came with 2.0"));
  CHECK(mentions(error_of_mechanisms(kPlan, "torch = \"new\"\n"), "is no version"));
  CHECK(mentions(error_of_mechanisms(kPlan, "avoid_recompile = true\n"), "no effect"));
  CHECK(
      mentions(error_of_mechanisms(
                   kPlan, "mask = \"never\"\navoid_recompile = true\ncudnn_deprioritized = true\n"),
               "no effect with cudnn_deprioritized"));
  CHECK(mentions(error_of_mechanisms(kPlan, "cudnn_attention = true\ncudnn_deprioritized = true\n"),
                 "contradicts"));
}

TEST_CASE("caches that would not fit into memory are refused, with what helps") {
  std::vector<BatchShape> shapes;
  for (std::int64_t length = 1; length <= 60; ++length) {
    shapes.push_back({4, length, 4 * length});
  }
  ShapeCost cost;
  CHECK(shape_stalls(std::vector{cost}, shapes, 1, 1, 60).size() == 60);
  const auto refused = [&] {
    try {
      (void)shape_stalls(std::vector{cost}, shapes, 1, 1, 59);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(mentions(refused(), "more than 59 shapes"));
  cost.entries = 10;
  CHECK(refused().empty());
}

TEST_CASE("switches of attention plans") {
  const auto builds = [](const std::string& more) {
    const Scenario scenario =
        parse_scenario(replaced(kShapesScenario, "MECHANISMS", kPlan) + more, "s.toml");
    const auto shapes = predict_quietly(scenario).shapes;
    return shapes ? shapes->builds : 0;
  };
  const std::int64_t all = builds("");
  CHECK(builds("mask = \"never\"\navoid_recompile = true\n") < all / 3);
  CHECK(builds("cudnn_deprioritized = true\n") == 0);
}
