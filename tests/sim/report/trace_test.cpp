#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/number_selection.h"
#include "costmodel/io/json_file.h"
#include "sim/predict/predict.h"
#include "sim/predict/step_simulator.h"
#include "sim/report/trace/traces.h"
#include "tests/approx.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// Four blocks, from the second step on with one bucket each, on four ranks, the last of them slow.
const std::string kTraceBlocks =
    test::replaced(test::kBucketBlocks,
                   {{"steps = 4", "steps = 3"},
                    {"ranks = 2\n", "ranks = 4\nslow_ranks = [{ rank = 3, factor = 1.3 }]\n"},
                    {"[times]\n", "[times]\ncopy_bandwidth = \"2 GB/s\"\n"}});

constexpr int kComputeThread = 2;

struct Traced {
  Prediction prediction;
  TraceFiles files;
  Json events;
};

Traced trace(const std::vector<std::string>& overrides) {
  const Scenario scenario = parse_scenario(kTraceBlocks, "blocks.toml", overrides);
  const BatchingPolicy& policy = scenario.policies.front();
  const Profile profile = scenario_profile(scenario);
  const std::string path = test::fresh_folder() + "/trace.json";
  Traced traced;
  traced.prediction = predict(scenario, policy, profile, {.noise_runs = 0, .keep_timelines = true});
  traced.files = write_chrome_trace(scenario, policy, profile, {}, path);
  traced.events = parse_json(read_text(path), path)["traceEvents"];
  return traced;
}

/// Begin and end (us) of the slices of each (rank, thread), by begin.
std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> slices(const Json& events) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  for (const Json& event : events) {
    if (event["ph"] == "X") {
      const double begin = event["ts"].get<double>();
      threads[{event["pid"].get<int>(), event["tid"].get<int>()}].emplace_back(
          begin, begin + event["dur"].get<double>());
    }
  }
  for (auto& [thread, list] : threads) {
    std::sort(list.begin(), list.end());
  }
  return threads;
}

std::set<std::string> thread_names(const Json& events) {
  std::set<std::string> names;
  for (const Json& event : events) {
    if (event["name"] == "thread_name") {
      names.insert(event["args"]["name"].get<std::string>());
    }
  }
  return names;
}

bool is_all_reduce(const Json& event) {
  return event["name"].get<std::string>().starts_with("all-reduce");
}

/// The names of the communicators' slices.
std::set<std::string> transfer_names(const Json& events) {
  std::set<std::string> names;
  for (const Json& event : events) {
    if (event["ph"] == "X" && event["cat"] == "communication") {
      names.insert(event["name"].get<std::string>());
    }
  }
  return names;
}

int count(const Json& events, const std::string& name) {
  return static_cast<int>(std::count_if(
      events.begin(), events.end(), [&](const Json& event) { return event["name"] == name; }));
}

const std::vector<std::string> kInterference = {"interference.strength=0.3"};
const std::vector<std::string> kGloo = {"cluster.communicator=gloo"};
const std::vector<std::string> kHook = {"ddp.communication_hook=fp16"};
const std::vector<std::string> kLocal = {
    "cluster.topology={algorithm=\"ring\", intra_latency=\"10 us\", intra_bandwidth=\"1 GB/s\"}",
    "ddp.communication_hook={kind=\"post_local_sgd\", start_iteration=1, period=2, "
    "subgroup_ranks=2}"};
const std::vector<std::string> kMicroBatches = {"ddp.accumulation_steps=3"};
const std::vector<std::string> kZero = {"ddp.zero_stage=3"};

}  // namespace

TEST_CASE("slices of one thread of a trace never overlap") {
  for (const auto& overrides :
       {std::vector<std::string>{}, kInterference, kGloo, kHook, kLocal, kMicroBatches, kZero}) {
    CAPTURE(overrides.empty() ? "plain" : overrides.back());
    const auto threads = slices(trace(overrides).events);
    CHECK(threads.size() >= 8);  // Compute and communicator of four ranks.
    int overlaps = 0;
    for (const auto& [thread, list] : threads) {
      for (std::size_t i = 1; i < list.size(); ++i) {
        // Times have three decimals: whole nanoseconds.
        overlaps += list[i].first < list[i - 1].second - 5e-4 ? 1 : 0;
      }
    }
    CHECK(overlaps == 0);
  }
}

TEST_CASE("a played step shows every op by its name, as long as it took") {
  const Traced traced = trace(kInterference);
  CHECK(thread_names(traced.events) == std::set<std::string>{"steps", "compute", "communicator"});
  CHECK(count(traced.events, "block0") == 3 * 4);
  CHECK(count(traced.events, "block3 backward") == 3 * 4);
  CHECK(count(traced.events, "copy gradients out") > 0);
  double shown = 0;
  for (const auto& [thread, list] : slices(traced.events)) {
    for (const auto& [begin, end] : list) {
      shown += thread.second == kComputeThread ? end - begin : 0;
    }
  }
  double worked = 0;
  for (const RankStepResult& row : traced.prediction.steps) {
    worked += row.forward_ms + row.backward_ms + row.exposed_ms + row.optimizer_ms;
  }
  CHECK(shown / 1e3 == Approx(worked));
}

TEST_CASE("transfers and the waits before them are apart, and end together on all ranks") {
  const Traced traced = trace(kInterference);
  std::map<std::pair<int, int>, std::set<double>> ends;  // (step, collective)
  for (const Json& event : traced.events) {
    if (is_all_reduce(event)) {
      ends[{event["args"]["step"].get<int>(), event["args"]["collective"].get<int>()}].insert(
          std::round(1e3 * (event["ts"].get<double>() + event["dur"].get<double>())));
    }
  }
  CHECK(ends.size() == 1 + 4 + 4);  // One bucket before they are rebuilt.
  for (const auto& [collective, times] : ends) {
    CHECK(times.size() == 1);
  }
  CHECK(count(traced.events, "wait for ranks") > 0);
}

TEST_CASE("a transfer is called by its kind and its bucket") {
  CHECK(transfer_names(trace(kInterference).events) ==
        std::set<std::string>{"wait for ranks",
                              "broadcast",  // Of the buckets' new order.
                              "all-reduce, bucket 0",
                              "all-reduce, bucket 1",
                              "all-reduce, bucket 2",
                              "all-reduce, bucket 3"});
  const auto sharded = transfer_names(trace(kZero).events);
  CHECK(sharded ==
        std::set<std::string>{"wait for ranks", "all-gather", "reduce-scatter", "broadcast"});
}

TEST_CASE("casts beside the compute stream, and two collectives at once, have their own threads") {
  CHECK(thread_names(trace(kHook).events).count("side stream") == 1);
  CHECK(thread_names(trace(kGloo).events).count("communicator 2") == 1);
}

TEST_CASE("ranks outside of a subgroup show none of its collectives") {
  // Two subgroups of two ranks: after the first step each rank takes part in its own only.
  std::map<int, int> all_reduces;
  for (const Json& event : trace(kLocal).events) {
    if (is_all_reduce(event) && event["args"]["step"] == 1) {
      ++all_reduces[event["pid"].get<int>()];
    }
  }
  REQUIRE(all_reduces.size() == 4);
  CHECK(all_reduces[0] == all_reduces[3]);
  const Traced traced = trace(kLocal);
  CHECK(static_cast<std::size_t>(all_reduces[0]) <
        traced.prediction.timelines[1].collectives.size());
}

TEST_CASE("counters of a step count all of its micro-batches") {
  // Three micro-batches of two samples of eight tokens.
  for (const Json& event : trace(kMicroBatches).events) {
    if (event["ph"] == "C" && event["name"] != "peak memory") {
      CHECK(event["args"]["a step"] == 3 * 2 * 8);
    }
  }
}

TEST_CASE("ops of a plain step lie where the step has them, host-bound or not") {
  for (const std::string launch : {"0 us", "40 us", "4 ms"}) {
    for (const std::string view : {"true", "false"}) {
      CAPTURE(launch);
      CAPTURE(view);
      const Scenario scenario =
          parse_scenario(kTraceBlocks,
                         "blocks.toml",
                         std::vector<std::string>{"host.launch=" + launch,
                                                  "times.optimizer=1 ms",
                                                  "ddp.gradient_as_bucket_view=" + view});
      Run run(scenario, scenario.policies.front(), scenario_profile(scenario));
      REQUIRE(run.reduced().plain());
      StepSimulator simulator(run);
      for (int step = 0; step < 3; ++step) {
        const StepTimeline timeline = simulator.next(true);
        REQUIRE(timeline.ranks.size() == 4);
        for (std::int32_t rank = 0; rank < 4; ++rank) {
          const RankTimeline& times = timeline.ranks[static_cast<std::size_t>(rank)];
          std::map<Phase, SimTime> ends;
          for (const TraceSpan& span : timeline.spans) {
            if (span.rank == rank) {
              ends[span.phase] = span.end;
              CHECK(span.enqueued_at <= span.begin);
            }
          }
          Duration waits{0};
          for (const TraceSpan& span : timeline.waits) {
            waits += span.rank == rank ? span.end - span.begin : Duration(0);
          }
          CHECK(ends[Phase::Forward] == times.forward_end);
          CHECK(ends[Phase::Backward] <= times.backward_end);
          CHECK(waits == times.exposed);
          CHECK(ends[Phase::CopyOut] <= times.end);
          CHECK(ends[Phase::Optimizer] == times.end);
          CHECK(timeline.collectives.size() == times.ready_at.size());
          REQUIRE(times.enqueued_at.size() == times.ready_at.size());
          for (std::size_t b = 0; b < times.enqueued_at.size(); ++b) {
            CHECK(times.enqueued_at[b] <= times.ready_at[b]);
          }
        }
      }
    }
  }
}

TEST_CASE("a list of numbers names each once, in order") {
  CHECK(parse_selection("0", 1, "ranks") == std::vector<int>{0});
  CHECK(parse_selection("5,1..3,2", 6, "ranks") == std::vector<int>{1, 2, 3, 5});
  for (const char* wrong :
       {"", "a", "1..", "..2", "2..1", "1,,2", "-1", "1.5", "6", "0..6", "1 "}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS((void)parse_selection(wrong, 6, "ranks"), InputError);
  }
}
