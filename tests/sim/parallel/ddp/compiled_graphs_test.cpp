// Facts of torch.compile inside DistributedDataParallel: when gradients become ready.
#include "sim/parallel/ddp/compiled_graphs.h"

#include <chrono>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "sim/predict/bucket_lists.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "tests/approx.h"
#include "tests/sim/parallel/ddp/bucket_lists.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

using Ends = std::vector<std::size_t>;

/// One gradient an op, of so many MiB, in the order of the backward; 0: the op completes none.
TrainedModel gradients(const std::vector<double>& mebibytes) {
  TrainedModel model;
  for (const double size : mebibytes) {
    model.completes.emplace_back();
    if (size > 0) {
      model.completes.back().push_back(static_cast<int>(model.parameters.size()));
      model.parameters.push_back({static_cast<std::int64_t>(size * 0x1p20), "f32", false});
    }
  }
  return model;
}

DdpOptions optimized(OptimizeDdp kind, std::int64_t cap_mebibytes) {
  DdpOptions options;
  options.optimize_ddp = kind;
  options.bucket_cap = Bytes(cap_mebibytes << 20);
  options.first_bucket_cap = options.bucket_cap;
  return options;
}

/// Six blocks of 4 MB on two ranks whose links take 2 ms a block.
Prediction compiled_step(const std::string& ddp) {
  const Scenario scenario = parse_scenario(fmt::format(R"(
[scenario]
name = "compiled"
steps = 6
warmup_steps = 3
[cluster]
ranks = 2
topology = {{ algorithm = "ring", intra_latency = "1 us", intra_bandwidth = "2 GB/s" }}
[times]
forward = "10 ms"
backward = "24 ms"
optimizer = "1 ms"
tokens = 40
[model]
kind = "blocks"
layers = 6
block_elements = 1_000_000
[ddp]
torch = "newest"
{}
[data]
samples = 64
lengths = {{ constant = 10 }}
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
)",
                                                       ddp),
                                           "compiled.toml",
                                           {});
  return predict(scenario,
                 scenario.policies.front(),
                 scenario_profile(scenario),
                 {.noise_runs = 0, .timeline_of_step = 4});
}

/// Milliseconds from the start of the step at which rank 0 launches each bucket.
std::vector<std::int64_t> launches(const Prediction& prediction) {
  const RankTimeline& rank = prediction.timelines.front().ranks.front();
  std::vector<std::int64_t> result;
  for (const SimTime ready : rank.ready_at) {
    result.push_back(
        std::chrono::duration_cast<std::chrono::milliseconds>(ready - rank.start).count());
  }
  return result;
}

}  // namespace

TEST_CASE("DDPOptimizer begins a graph before the op that follows once the limit is reached") {
  // Limits of 1 MiB for the first graph and 4 MiB for the others: [0.5 0.5], [3 1], [2 2], [1].
  const TrainedModel model = gradients({0.5, 0.5, 3, 1, 2, 2, 1});
  CHECK(compiled_graphs(model, optimized(OptimizeDdp::DdpOptimizer, 4)) == Ends{2, 4, 6, 7});
  // The first limit stays 1 MiB although DDP's own first bucket has the stated cap.
  const std::vector<std::int64_t> limits = {4 << 20, 4 << 20};
  const auto order = std::vector<int>{0, 1, 2, 3, 4, 5, 6};
  CHECK(lists(rebuilt_buckets(model.parameters, order, limits, false)) ==
        Lists{{0, 1, 2}, {3, 4, 5}, {6}});
  CHECK(compiled_graphs(model, optimized(OptimizeDdp::NoOptimization, 4)) == Ends{7});
}

TEST_CASE("ops without a parameter belong to the graph that is open, or to the last one") {
  // The op behind [1] finds the limit reached and opens a graph that [5] then fills; what is left
  // after [4] has no parameter and joins it.
  const TrainedModel model = gradients({1, 0, 5, 4, 0, 0});
  CHECK(compiled_graphs(model, optimized(OptimizeDdp::DdpOptimizer, 4)) == Ends{1, 3, 6});
  CHECK(compiled_graphs(gradients({0, 0}), optimized(OptimizeDdp::DdpOptimizer, 4)) == Ends{2});
}

TEST_CASE("gradients of a graph become ready together at its end, in the order of the backward") {
  const TrainedModel model = gradients({0.5, 0.5, 3, 1, 2, 2, 1});
  const TrainedModel compiled =
      with_compiled_graphs(model, optimized(OptimizeDdp::DdpOptimizer, 4));
  CHECK(compiled.completes == Lists{{}, {0, 1}, {}, {2, 3}, {}, {4, 5}, {6}});
  CHECK(with_compiled_graphs(model, optimized(OptimizeDdp::NoOptimization, 4)).completes ==
        Lists{{}, {}, {}, {}, {}, {}, {0, 1, 2, 3, 4, 5, 6}});
  CHECK(with_compiled_graphs(model, optimized(OptimizeDdp::Eager, 4)).completes == model.completes);
}

TEST_CASE("a compiled step launches its buckets at the ends of graphs") {
  // Backward from 10 to 34 ms, 4 ms a block. Eager, limits of 8,000,000 bytes: buckets of two
  // blocks at 18, 26 and 34. DDPOptimizer's first graph closes at 1 MiB, so it is one block; then
  // two, two and one: the first bucket (two blocks) waits for the second graph's end at 22, the
  // second for the third's at 30.
  const std::string cap = "bucket_cap = \"8000000 B\"\n";
  const auto eager = compiled_step(cap);
  CHECK(launches(eager) == std::vector<std::int64_t>{18, 26, 34});
  const auto split = compiled_step(cap + "optimize_ddp = \"ddp_optimizer\"");
  CHECK(launches(split) == std::vector<std::int64_t>{22, 30, 34});
  const auto whole = compiled_step(cap + "optimize_ddp = \"no_optimization\"");
  CHECK(launches(whole) == std::vector<std::int64_t>{34, 34, 34});
  CHECK(whole.summary.overlap_fraction == Approx(0));
  CHECK(eager.summary.step_time_ms.mean <= split.summary.step_time_ms.mean);
  CHECK(split.summary.step_time_ms.mean < whole.summary.step_time_ms.mean);
}
