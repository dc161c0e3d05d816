// What a trace shows is what is predicted: of each rank and step, the ops add up to the parts of
// the prediction, whether the recurrence or the engine made it.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/predict.h"
#include "sim/predict/step_simulator.h"
#include "tests/test_data.h"

using namespace stepsim;

namespace {

std::vector<std::string> shipped_scenarios() {
  std::vector<std::string> paths;
  for (const char* folder : {"", "/batching", "/published"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(test::source_root() + "/scenarios" + folder)) {
      if (entry.path().extension() == ".toml") {
        paths.push_back(entry.path().string());
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Milliseconds of each phase on a rank's compute stream, from the ops and waits of a trace. An op
/// that the host launches too late begins after the one before it has ended; the gap counts with
/// the op, but for the part up to the backward's end: its last op may take no time and have no
/// span.
struct Shown {
  std::array<double, kPhases> ms{};
  double gaps = 0;
  bool overlaps = false;

  [[nodiscard]] double of(Phase phase) const { return ms[static_cast<std::size_t>(phase)]; }
};

Shown shown_of(const StepTimeline& timeline, std::int32_t rank) {
  std::vector<TraceSpan> spans;
  for (const auto* list : {&timeline.spans, &timeline.waits}) {
    std::copy_if(list->begin(), list->end(), std::back_inserter(spans), [&](const TraceSpan& span) {
      return span.rank == rank && span.stream == kComputeStream;
    });
  }
  std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
    return a.begin < b.begin;
  });
  Shown shown;
  const RankTimeline& line = timeline.ranks[static_cast<std::size_t>(rank)];
  SimTime clock = line.start;
  for (const TraceSpan& span : spans) {
    if (span.phase == Phase::Optimizer && clock < line.backward_end) {
      shown.ms[static_cast<std::size_t>(Phase::Backward)] += to_ms(line.backward_end - clock);
      clock = line.backward_end;
    }
    shown.ms[static_cast<std::size_t>(span.phase)] += to_ms(span.end - clock);
    shown.gaps += to_ms(span.begin - clock);
    shown.overlaps = shown.overlaps || span.begin < clock;
    clock = span.end;
  }
  return shown;
}

/// The largest difference between a trace and its prediction, in microseconds, over the parts of
/// all ranks and steps; and the gaps before ops.
struct Differences {
  double us = 0;
  double gaps_ms = 0;
  bool overlaps = false;
};

Differences differences(const Scenario& scenario, const BatchingPolicy& policy) {
  const Profile profile = scenario_profile(scenario);
  const Prediction prediction = predict(scenario, policy, profile, {.noise_runs = 0});
  Run run(scenario, policy, profile);
  StepSimulator simulator(run);
  Differences result;
  std::size_t row = 0;
  for (int step = 0; step < scenario.steps; ++step) {
    const StepTimeline timeline = simulator.next(true);
    for (std::int32_t rank = 0; rank < scenario.ranks; ++rank) {
      const RankStepResult& predicted = prediction.steps[row++];
      const Shown shown = shown_of(timeline, rank);
      const auto compare = [&](double ms, double wanted) {
        result.us = std::max(result.us, 1e3 * std::abs(ms - wanted));
      };
      compare(shown.of(Phase::Data), predicted.data_ms);
      compare(shown.of(Phase::Forward) + shown.of(Phase::Other), predicted.forward_ms);
      compare(shown.of(Phase::Backward), predicted.backward_ms);
      compare(shown.of(Phase::Wait), predicted.exposed_ms);
      compare(shown.of(Phase::CopyOut) + shown.of(Phase::Optimizer), predicted.optimizer_ms);
      result.gaps_ms += shown.gaps;
      result.overlaps = result.overlaps || shown.overlaps;
    }
  }
  return result;
}

}  // namespace

TEST_CASE("the ops of each rank and step of a shipped scenario add up to its prediction") {
  for (const std::string& path : shipped_scenarios()) {
    for (const std::string cores : {"", "cluster.cores=1"}) {
      CAPTURE(path);
      CAPTURE(cores);
      std::vector<std::string> overrides = {"scenario.steps=2", "scenario.warmup_steps=0"};
      if (!cores.empty()) {
        overrides.push_back(cores);
      }
      const Scenario scenario = read_scenario(path, overrides);
      for (const BatchingPolicy& policy : scenario.policies) {
        CAPTURE(policy.name());
        const Differences difference = differences(scenario, policy);
        CHECK(difference.us < 1);
        CHECK_FALSE(difference.overlaps);
      }
    }
  }
}

TEST_CASE("ops on shared cores are as long in a trace as they make the step") {
  // Launches cost nothing here, so no op starts late, and what is shown is work.
  const std::string path = test::source_root() + "/scenarios/token_skew.toml";
  const auto backward = [&](const std::vector<std::string>& overrides) {
    const Scenario scenario = read_scenario(path, overrides);
    const BatchingPolicy& policy = scenario.policies.front();
    const Differences difference = differences(scenario, policy);
    CHECK(difference.us < 1);
    CHECK(difference.gaps_ms == 0);
    Run run(scenario, policy, scenario_profile(scenario));
    const StepTimeline timeline = StepSimulator(run).next(true);
    return shown_of(timeline, 0).of(Phase::Backward);
  };
  CHECK(backward({"host.launch=0 us", "cluster.cores=1"}) > 2 * backward({"host.launch=0 us"}));
}
