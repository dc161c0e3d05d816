// Speed of the step simulations and of the event queue. Goals, on one core of a server from 2020 or
// later, release build:
//   simulate_step     (the oracle) at least 20 million events/s at 64 ranks x 64 buckets
//   closed_form_step  at least 200 million rank-buckets/s at 64 ranks x 64 buckets
//   event queue       at most 80 ns per pop and push with 256 events pending
// A measurement quotes machine, compiler and command: build/tests/bench/step_bench.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "sim/engine/event_queue.h"
#include "sim/parallel/closed_form.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_simulator.h"
#include "tests/oracles/step_simulator.h"
#include "tests/sim/parallel/ddp/step_program.h"
#include "tests/source_root.h"

namespace {

using namespace stepsim;

constexpr std::size_t kBuckets = 64;

/// A step of ranks of unequal speed whose all-reduces overlap about half of the backward.
StepInput make_step(std::size_t ranks) {
  std::mt19937_64 generator(1);
  const auto draw = [&](std::int64_t typical) {
    const auto span = static_cast<std::uint64_t>(typical);
    return Duration(typical / 2 + static_cast<std::int64_t>(generator() % span));
  };
  const auto op = [&](std::int64_t typical) { return op_span(Duration(5'000), draw(typical)); };
  StepInput input;
  input.all_reduce.assign(kBuckets, Duration(900'000));
  input.ranks.resize(ranks);
  for (RankStep& rank : input.ranks) {
    rank.data = draw(1'000'000);
    rank.forward = op(30'000'000);
    for (std::size_t b = 0; b < kBuckets; ++b) {
      rank.backward.push_back(op(1'000'000));
      rank.copy_out.push_back(op(50'000));
    }
    rank.backward.emplace_back();
    rank.optimizer = op(3'000'000);
  }
  return input;
}

void event_simulation(benchmark::State& state) {
  const StepInput input = make_step(static_cast<std::size_t>(state.range(0)));
  const std::vector<RankClock> clocks(input.ranks.size());
  std::uint64_t handled = 0;
  for (auto _ : state) {
    std::uint64_t events = 0;
    benchmark::DoNotOptimize(simulate_step(input, clocks, &events));
    handled += events;
  }
  state.counters["events/s"] =
      benchmark::Counter(static_cast<double>(handled), benchmark::Counter::kIsRate);
}

/// The engine that plays programs; range(1) = 1: with interference, so that every span and transfer
/// changes its rate while it runs. Compare times: work that follows work at one rate is one event.
void engine(benchmark::State& state) {
  const StepInput input = make_step(static_cast<std::size_t>(state.range(0)));
  const std::vector<RankClock> clocks(input.ranks.size());
  EngineRules rules;
  if (state.range(1) == 1) {
    rules.interference.compute = 0.3;
    rules.interference.transfer = 0.3;
  }
  std::uint64_t handled = 0;
  for (auto _ : state) {
    Engine plays(rules, clocks);
    benchmark::DoNotOptimize(play_step(input, plays));
    handled += plays.events_handled();
  }
  state.counters["events/s"] =
      benchmark::Counter(static_cast<double>(handled), benchmark::Counter::kIsRate);
}

/// scenarios/engines_step.toml: 10 steps of 12 buckets; what simulators that send every message
/// need 0.56 to 1.9 s for at 64 ranks. range(1): 0 closed form, 1 engine, 2 engine with
/// interference; the same model under FSDP2, 3 in lockstep, 4 by the engine.
void engines_step(benchmark::State& state) {
  std::vector<std::string> overrides = {"cluster.ranks=" + std::to_string(state.range(0))};
  if (state.range(1) == 2) {
    overrides.emplace_back("interference.strength=0.3");
  }
  if (state.range(1) >= 3) {
    overrides.emplace_back("parallel.kind=fsdp2");
  }
  const Scenario scenario =
      read_scenario(test::source_root() + "/scenarios/engines_step.toml", overrides);
  Run run(scenario, scenario.policies.front(), scenario_profile(scenario));
  double last_end = 0;
  for (auto _ : state) {
    StepSimulator simulator(run, {}, 1, nullptr, state.range(1) == 1 || state.range(1) == 4);
    for (int step = 0; step < scenario.steps; ++step) {
      const StepTimeline timeline = simulator.next();
      last_end = to_ms(timeline.ranks.back().end.time_since_epoch());
    }
  }
  state.counters["rank-steps/s"] =
      benchmark::Counter(static_cast<double>(scenario.ranks * scenario.steps),
                         benchmark::Counter::kIsIterationInvariantRate);
  state.counters["simulated_ms"] = last_end;
}

void closed_form(benchmark::State& state) {
  const StepInput input = make_step(static_cast<std::size_t>(state.range(0)));
  const std::vector<RankClock> clocks(input.ranks.size());
  for (auto _ : state) {
    benchmark::DoNotOptimize(closed_form_step(input, clocks));
  }
  const double rank_buckets = static_cast<double>(input.ranks.size() * kBuckets);
  state.counters["rank-buckets/s"] =
      benchmark::Counter(rank_buckets, benchmark::Counter::kIsIterationInvariantRate);
}

/// Hold model: pop the earliest event, push it again a little later; many ties.
void event_queue_hold(benchmark::State& state) {
  constexpr std::uint64_t kDelays[] = {0, 10, 20, 50, 100};
  std::mt19937_64 generator(1);
  std::vector<Duration> delays(4096);
  for (Duration& delay : delays) {
    delay = Duration(static_cast<std::int64_t>(kDelays[generator() % 5]));
  }
  EventQueue queue;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    queue.push(SimTime(delays[static_cast<std::size_t>(i) % delays.size()]), 0, 0, 0);
  }
  std::size_t next = 0;
  for (auto _ : state) {
    const Event event = queue.pop();
    queue.push(event.time + delays[next], event.kind, event.rank, event.index);
    next = (next + 1) % delays.size();
  }
  state.counters["events/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

}  // namespace

BENCHMARK(event_simulation)->Arg(8)->Arg(64)->Arg(1024)->Unit(benchmark::kMicrosecond);
BENCHMARK(engine)
    ->ArgsProduct({{8, 64, 1024}, {0, 1}})
    ->ArgNames({"", "interference"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(engines_step)->ArgsProduct({{8, 64}, {0, 1, 2, 3, 4}})->Unit(benchmark::kMillisecond);
BENCHMARK(closed_form)->Arg(8)->Arg(64)->Arg(1024)->Unit(benchmark::kMicrosecond);
BENCHMARK(event_queue_hold)->Arg(16)->Arg(256)->Arg(4096);

BENCHMARK_MAIN();
