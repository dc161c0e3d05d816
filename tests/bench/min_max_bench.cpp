// Time to deal one global batch out by min-max: 12 samples a rank of SST-2, 64 looked at, the costs
// of prefixes given. Goal, on one core of a server from 2020 or later, release build: under 1 ms at
// 4096 ranks without a tie-break. tie_break 0 none, 1 min_sum, 2 variance, 3 leximax.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "sim/batching/histogram.h"
#include "tests/oracles/min_max_enumeration.h"
#include "tests/source_root.h"

namespace {

using namespace stepsim;

constexpr std::int64_t kBuffer = 64;

std::vector<std::vector<std::int64_t>> buffers(std::int64_t ranks) {
  const auto histogram = read_histogram(test::source_root() + "/scenarios/lengths/sst2_train.json");
  const auto lengths = sample_histogram(histogram, ranks * kBuffer, 1);
  std::vector<std::vector<std::int64_t>> result;
  for (auto begin = lengths.begin(); begin != lengths.end(); begin += kBuffer) {
    result.emplace_back(begin, begin + kBuffer);
  }
  return result;
}

std::vector<PrefixCosts> costs_of(const std::vector<std::vector<std::int64_t>>& buffers) {
  std::vector<PrefixCosts> costs;
  for (const auto& buffer : buffers) {
    costs.push_back(padded_token_costs(buffer));
  }
  return costs;
}

void min_max(benchmark::State& state) {
  const auto costs = costs_of(buffers(state.range(0)));
  const auto tie_break = static_cast<TieBreak>(state.range(1));
  Allocation allocation;
  for (auto _ : state) {
    allocation = solve_min_max(costs, 12 * state.range(0), tie_break);
    benchmark::DoNotOptimize(allocation);
  }
  state.counters["slack"] = static_cast<double>(allocation.slack);
  state.counters["exact"] = allocation.exact ? 1 : 0;
}

void prefix_costs(benchmark::State& state) {
  const auto all = buffers(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(costs_of(all));
  }
}

void enumeration(benchmark::State& state) {
  const auto costs = costs_of(buffers(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(enumerate_min_max(costs, 12 * state.range(0)));
  }
}

}  // namespace

BENCHMARK(min_max)
    ->ArgsProduct({{4, 64, 512, 4096}, {0, 1, 2, 3}})
    ->ArgNames({"ranks", "tie_break"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(prefix_costs)->Arg(4)->Arg(64)->Arg(512)->Arg(4096)->Unit(benchmark::kMicrosecond);
BENCHMARK(enumeration)->Arg(4)->Unit(benchmark::kMicrosecond);

BENCHMARK_MAIN();
