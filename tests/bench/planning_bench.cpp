// Time to plan one epoch of a million samples, for each kind of policy: log-normal lengths as of
// web text (mean 690, cut at 2048), 8 ranks, 16 samples or 16 * 2048 tokens a rank and step. Goal,
// on one core of a server from 2020 or later, release build: under 2 s each.
#include <cstdint>

#include <benchmark/benchmark.h>

#include "sim/batching/lengths.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/policy_examples.h"

namespace {

using namespace stepsim;
using namespace stepsim::test;

constexpr std::int64_t kSamples = 1'000'000;
constexpr std::int64_t kLongest = 2048;

const std::vector<std::int64_t>& lengths() {
  static const std::vector<std::int64_t> kLengths = [] {
    LengthSource source;
    source.kind = LengthSource::Kind::LogNormal;
    source.mu = 5.999;
    source.sigma = 1.037;
    source.max = kLongest;
    return generate_lengths(source, kSamples);
  }();
  return kLengths;
}

void plan(benchmark::State& state, const test::PolicyExample& example) {
  PolicyInput input;
  input.lengths = lengths();
  input.ranks = 8;
  if (example.targets) {
    input.targets = lengths();
  }
  const BatchingPolicy policy = make_policy(example.spec);
  for (auto _ : state) {
    benchmark::DoNotOptimize(policy.epoch(input));
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& example : test::policy_examples(16, kLongest)) {
    benchmark::RegisterBenchmark(example.spec.name.c_str(), plan, example)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
