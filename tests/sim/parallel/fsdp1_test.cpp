// FSDP1: FlatParameters, counts of collectives, prefetch and the limit on what the host frees.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/index.h"
#include "costmodel/model/model_presets.h"
#include "sim/engine/engine.h"
#include "sim/parallel/ddp/ddp_buckets.h"
#include "sim/parallel/fsdp1/fsdp1_program.h"
#include "sim/parallel/lockstep.h"

namespace stepsim {
namespace {

constexpr int kRanks = 4;

/// A root with an embedding and a head around blocks, all of 400 elements.
struct Wrapped {
  int blocks = 3;
  Fsdp1Options options = {.shards = kRanks};
  std::int64_t compute_us = 1000;  ///< Of a block's forward; its backward takes twice as long.
  std::int64_t launch_us = 0;
  std::int64_t transfer_us = 400;
  int micro_batches = 1;
};

struct Fsdp1Step {
  StepProgram program;
  ExecutionTrace trace;

  [[nodiscard]] std::int64_t count(CollectiveKind kind) const {
    return std::ranges::count(program.uses, kind, &CollectiveUse::kind);
  }
  [[nodiscard]] double step_us() const {
    return static_cast<double>(trace.ranks.front().device_end.time_since_epoch().count()) / 1e3;
  }
  [[nodiscard]] double host_us() const {
    return static_cast<double>(trace.ranks.front().host_end.time_since_epoch().count()) / 1e3;
  }
};

Fsdp1Step fsdp1_step(const Wrapped& wrapped) {
  TrainedModel model;
  for (int unit = 0; unit <= wrapped.blocks + 1; ++unit) {
    model.forward_unit.push_back(unit <= wrapped.blocks ? unit : 0);
  }
  model.backward_unit.assign(model.forward_unit.rbegin(), model.forward_unit.rend());
  model.completes.resize(model.backward_unit.size());
  for (int unit = 0; unit <= wrapped.blocks; ++unit) {
    model.parameters.push_back({.bytes = 1600, .dtype = "f32"});
    model.shapes.push_back({400});
    model.units.push_back({unit});
  }
  const auto us = [](std::int64_t value) { return Duration(1000 * value); };
  MicroBatchWork batch;
  for (std::size_t op = 0; op < model.forward_unit.size(); ++op) {
    batch.forward.push_back({us(wrapped.launch_us), us(wrapped.compute_us)});
    batch.backward.push_back({us(wrapped.launch_us), us(2 * wrapped.compute_us)});
  }
  StepWork step;
  step.ranks.resize(at(wrapped.options.shards * wrapped.options.replicas));
  for (RankWork& rank : step.ranks) {
    rank.micro_batches.assign(at(wrapped.micro_batches), batch);
  }
  step.iterations.resize(at(wrapped.micro_batches));
  StepPrices prices;
  prices.elements = [](OpClass, std::int64_t, double) { return Kernel{}; };
  prices.memory = [](double, double) { return Kernel{}; };
  prices.transfer = [=](CollectiveKind, double, const RankGroup&) {
    return us(wrapped.transfer_us);
  };
  Fsdp1Step played;
  played.program = fsdp1_program(model, wrapped.options, {}, prices, step);
  EngineRules rules;
  rules.communicators = fsdp1_communicators(wrapped.options, false);
  const std::vector<RankClock> clocks(step.ranks.size());
  Engine engine(rules, clocks);
  played.trace = engine.play(played.program.program);
  return played;
}

}  // namespace

TEST_CASE("fsdp1: a FlatParameter is padded once") {
  // PyTorch 2.15: 41 elements on 2 ranks are 42, 111 are 112.
  CHECK(flat_elements({41}, 2) == 42);
  CHECK(flat_elements({100, 11}, 2) == 112);
  CHECK(flat_elements({5, 5}, 4) == 12);
  // With use_orig_params each but the last is padded to 16 bytes: four elements of float32.
  CHECK(flat_elements({5, 5}, 1, 4) == 13);
  CHECK(flat_elements({5, 5}, 4, 4) == 16);
}

TEST_CASE("fsdp1: counts of a public run: GPT-2 Large, 36 blocks, 2 GPUs") {
  Wrapped wrapped;
  wrapped.blocks = 36;
  wrapped.options.shards = 2;
  const Fsdp1Step full = fsdp1_step(wrapped);
  CHECK(full.count(CollectiveKind::AllGather) == 73);
  CHECK(full.count(CollectiveKind::ReduceScatter) == 37);
  wrapped.options.keeps_after_forward = true;
  const Fsdp1Step kept = fsdp1_step(wrapped);
  CHECK(kept.count(CollectiveKind::AllGather) == 37);
  CHECK(kept.count(CollectiveKind::ReduceScatter) == 37);
}

TEST_CASE("ddp: buckets of the same public run") {
  CHECK(ddp_buckets(model_preset("gpt2-large"), {}).rebuilt.size() == 109);
}

TEST_CASE("fsdp1: replicas reduce each shard, and no_sync reduces once") {
  Wrapped wrapped;
  wrapped.options = {.shards = 2, .replicas = 2};
  // Two shard groups and two replica groups, four units.
  CHECK(fsdp1_step(wrapped).count(CollectiveKind::AllReduce) == 2 * 4);
  wrapped.options = {.shards = kRanks};
  wrapped.micro_batches = 3;
  CHECK(fsdp1_step(wrapped).count(CollectiveKind::ReduceScatter) == 3 * 4);
  CHECK(fsdp1_step(wrapped).count(CollectiveKind::AllGather) == 3 * 7);
  wrapped.options.syncs_each_batch = false;
  CHECK(fsdp1_step(wrapped).count(CollectiveKind::ReduceScatter) == 4);
}

TEST_CASE("fsdp1: without prefetch a gather waits behind the reduction of the unit after it") {
  Wrapped wrapped;
  wrapped.blocks = 6;
  const double pre = fsdp1_step(wrapped).step_us();
  wrapped.options.backward_prefetch = Fsdp1Prefetch::Post;
  const double post = fsdp1_step(wrapped).step_us();
  wrapped.options.backward_prefetch = Fsdp1Prefetch::None;
  const double none = fsdp1_step(wrapped).step_us();
  // A host that is ahead launches all three alike early, but none issues the gather after the
  // reduction, which comes when the backward ends.
  CHECK(pre <= post);
  CHECK(none - pre == doctest::Approx(6 * 800.0 - 2 * 400.0).epsilon(0.25));
}

TEST_CASE("fsdp1: the host waits for what it freed, and not without the limit") {
  Wrapped wrapped;
  wrapped.blocks = 8;
  const Fsdp1Step limited = fsdp1_step(wrapped);
  wrapped.options.limits_gathers = false;
  const Fsdp1Step free = fsdp1_step(wrapped);
  CHECK(free.host_us() == 0);
  CHECK(limited.host_us() > 8 * 1000.0);
  // What the device waits for is launched in time all the same.
  CHECK(limited.step_us() == doctest::Approx(free.step_us()).epsilon(0.05));
  CHECK(limited.step_us() >= free.step_us());
  // With launches that take as long as the kernels there is nothing to hold back.
  wrapped.launch_us = 2000;
  const double unlimited = fsdp1_step(wrapped).step_us();
  wrapped.options.limits_gathers = true;
  CHECK(fsdp1_step(wrapped).step_us() == unlimited);
}

}  // namespace stepsim
