// Facts of DistributedDataParallel: what is sent, and the variants of a step.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/network/collective_cost.h"
#include "sim/batching/loss_scale.h"
#include "tests/approx.h"
#include "tests/sim/parallel/ddp/ddp_fixture.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

using VariantSizes = std::vector<double>;

double sum(const VariantSizes& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// Ring bytes that one rank sends in a step.
double wire_bytes(const DdpCase& work) {
  const DdpRun run = work.play();
  double bytes = 0;
  for (const CollectiveUse& use : run.program.uses) {
    bytes += ring_bytes_per_rank(use.kind, use.bytes, static_cast<int>(work.step.ranks.size()));
  }
  return bytes;
}

/// Four matrices of 64 x 64 and their biases, on four ranks.
DdpCase matrices() {
  DdpCase work({16384, 256, 16384, 256, 16384, 256, 16384, 256}, 4);
  for (std::size_t p = 0; p < 8; p += 2) {
    work.model.shapes[p] = {64, 64};
  }
  work.limits(10000, 20000);
  return work;
}

/// Steps inside join(), each one iteration of a model with buffers or without.
struct Joining {
  explicit Joining(bool buffers) : sequence({false, false, buffers}) {
    if (buffers) {
      work.model.buffer_bytes = {96};
    }
    work.step.joining = true;
  }

  /// `joined`: rank 1 is out of inputs.
  DdpRun next(bool joined, bool last) {
    work.step.iterations = {sequence.next()};
    work.step.iterations[0].uses_rebuilt = true;
    work.batch(1).joined = joined;
    work.step.last_of_join = last;
    return work.play();
  }

  DdpCase work = DdpCase({1000, 1000, 1000});
  IterationSequence sequence;
};

std::int64_t scalars(const DdpRun& run) {
  const VariantSizes sent = run.bytes(CollectiveKind::AllReduce);
  return std::count(sent.begin(), sent.end(), 4.0);
}

}  // namespace

TEST_CASE("no_sync micro-steps neither copy nor communicate; the synced one moves all once") {
  DdpCase work({1000, 2000, 3000});
  work.limits(1000, 3000);
  work.prices.hook = Duration(1);
  IterationSequence sequence({});
  const Iteration local = sequence.next(false);
  Iteration synced;
  synced.uses_rebuilt = true;
  DdpCase alone = work;
  alone.step.iterations = {local};
  const DdpRun micro = alone.play();
  CHECK(micro.program.uses.empty());
  CHECK(micro.launches(kCopyIn) + micro.launches(kCopyOut) + micro.launches(kZeroing) == 0);
  CHECK(micro.played.ranks[0].host_end == time_at(0));  // Not even the hooks' work.

  Iteration first = local;
  first.uses_rebuilt = true;
  work.step.iterations = {first, first, synced};
  work.compute(Duration(500), Duration(1000));
  const DdpRun run = work.play();
  const VariantSizes sent = run.bytes(CollectiveKind::AllReduce);
  CHECK(sent == VariantSizes{3000, 3000});
  CHECK(run.launches(kCopyIn) == 3);
  CHECK(run.launches(kCopyOut) == 3);
  // T = 3 forwards + 2 local backwards + the synced one + what is exposed: gradients of the last
  // bucket [1 0] at 3 x (500 + 3000), its 3000 bytes after the first bucket's 3000 from 8500 on.
  CHECK(run.launch(0) == time_at(2 * 3500 + 1500));
  CHECK(run.end(1) == time_at(8500 + 6000));
  CHECK(run.device_end() == time_at(14500));
}

TEST_CASE("later micro-batches add into the gradients") {
  DdpCase work({1000, 1000});
  work.memory = Duration(40);
  Iteration local;
  local.synchronises = false;
  local.uses_rebuilt = true;
  local.launching = Launching::None;
  Iteration synced = work.step.iterations[0];
  work.step.iterations = {local, synced};
  work.compute(Duration(500), Duration(1000));
  const DdpRun run = work.play();
  CHECK(run.launches(kMemory) == 2);
  CHECK(run.launch(0) == time_at(2500 + 500 + 1040));
}

TEST_CASE("a step sends 2(p-1)/p of the gradients, half of it with the fp16 and bf16 hooks") {
  DdpCase work = matrices();
  const double model = 4 * (16384 + 256);
  CHECK(wire_bytes(work) == Approx(2.0 * 3 / 4 * model));
  work.options.hook = CommunicationHook::Fp16;
  CHECK(wire_bytes(work) == Approx(3.0 / 4 * model));
  work.options.hook = CommunicationHook::Bf16;
  CHECK(wire_bytes(work) == Approx(3.0 / 4 * model));
}

TEST_CASE("a step with PowerSGD sends the factors and the biases") {
  DdpCase work = matrices();
  work.options.hook = CommunicationHook::PowerSgd;
  work.options.hook_options.rank = 2;
  work.options.hook_options.start_iteration = 5;
  work.step.step = 4;
  CHECK(sum(work.play().bytes(CollectiveKind::AllReduce)) == 4 * (16384 + 256));
  work.step.step = 5;
  const DdpRun run = work.play();
  CHECK(sum(run.bytes(CollectiveKind::AllReduce)) == 4 * (4.0 * 2 * (64 + 64)) + 4 * 256);
  // Uncompressed tensors, P and Q of every bucket, one after the other.
  CHECK(run.program.uses.size() == 3 * work.buckets.rebuilt.size());
  for (std::size_t c = 1; c < run.played.collectives.size(); ++c) {
    CHECK(run.played.collectives[c].start >= run.played.collectives[c - 1].end);
  }
}

TEST_CASE("a quantised step sends p/8 of the fp32 ring, beside the scales") {
  for (const int ranks : {2, 4, 8, 16}) {
    CAPTURE(ranks);
    DdpCase work({1 << 20, 1 << 20}, ranks);
    const double plain = wire_bytes(work);
    work.options.hook = CommunicationHook::QuantizePerTensor;
    const double scales = (ranks - 1) * 8.0 * static_cast<double>(work.buckets.rebuilt.size());
    CHECK((wire_bytes(work) - scales) / plain == Approx(ranks / 8.0));
  }
}

TEST_CASE("hooks send the element size that gradients have") {
  DdpCase work({1000, 1000});
  work.model.shapes = {{500}, {500}};  // bf16 parameters
  work.options.hook = CommunicationHook::AllReduce;
  CHECK(work.play().bytes(CollectiveKind::AllReduce) == VariantSizes{1000, 1000});
}

TEST_CASE("a hook that casts reads and writes the gradients and what it sends") {
  DdpCase work({1000});
  work.memory_ns_a_byte = 1;
  work.options.hook = CommunicationHook::Fp16;
  const auto copied = [&work] {
    std::vector<std::int64_t> bytes;
    for (const TraceSpan& span : work.play().spans(kMemory)) {
      bytes.push_back((span.end - span.begin).count());
    }
    return bytes;
  };
  using Copied = std::vector<std::int64_t>;
  CHECK(copied() == Copied{1500, 1000, 1500});  // fp32: cast, division, cast back.
  work.model.shapes = {{500}};                  // bf16 parameters
  CHECK(copied() == Copied{2000, 2000, 2000});
}

TEST_CASE("PowerSGD blocks the host at every bucket: nothing of the backward overlaps it") {
  DdpCase work = matrices();
  work.memory = Duration(10);
  CHECK(work.play().played.ranks[0].host_end == time_at(0));
  work.options.hook = CommunicationHook::PowerSgd;
  work.options.hook_options.start_iteration = 0;
  const DdpRun run = work.play();
  const int buckets = static_cast<int>(work.buckets.rebuilt.size());
  REQUIRE(buckets == 3);
  CHECK(run.host_syncs() >= buckets);
  for (int b = 0; b < buckets; ++b) {
    const SimTime first = run.played.collectives[run.collective(b, 0)].start;
    const SimTime last = run.played.collectives[run.collective(b, 2)].end;
    CHECK(last > first);
    for (const TraceSpan& op : run.spans(kBackwardOp)) {
      CHECK((op.end <= first || op.begin >= last));
    }
  }
  // The host comes back only after the last bucket's factors.
  CHECK(run.played.ranks[0].host_end >= run.played.collectives[run.collective(2, 2)].end);
}

TEST_CASE("post-local SGD reduces inside nodes and averages all parameters every period") {
  DdpCase work({1000, 1000, 1000}, 4);
  work.optimizer = Duration(300);
  work.options.hook = CommunicationHook::PostLocalSgd;
  work.options.hook_options.start_iteration = 2;
  work.options.hook_options.subgroup_ranks = 2;
  work.options.hook_options.period = 3;
  for (int step = 0; step < 9; ++step) {
    CAPTURE(step);
    work.step.step = step;
    const DdpRun run = work.play();
    const bool averages = step >= 2 && (step - 2) % 3 == 0;
    int world = 0;
    for (std::size_t c = 0; c < run.program.uses.size(); ++c) {
      const bool gradients = run.program.uses[c].bucket >= 0;
      const bool everyone = run.program.program.collectives[c].communicator == 0;
      CHECK(everyone == (!gradients || step < 2));
      world += everyone && !gradients ? 1 : 0;
    }
    CHECK(world == (averages ? 1 : 0));
    CHECK(run.host_syncs() == (averages ? 1 : 0));
    if (averages) {
      // One flat all-reduce of all parameters, behind the optimizer and not overlapped.
      CHECK(run.program.uses[run.collective(-1)].bytes == 3000);
      CHECK(run.start(-1) == run.spans(kOptimizer)[0].end);
      CHECK(run.device_end() == run.end(-1));
    }
  }
}

TEST_CASE("nodes of post-local SGD do not wait for each other") {
  DdpCase work({1000, 1000}, 4);
  work.options.hook = CommunicationHook::PostLocalSgd;
  work.options.hook_options.start_iteration = 0;
  work.options.hook_options.subgroup_ranks = 2;
  work.step.step = 1;
  const DdpRun even = work.play();
  work.batch(3).backward[0].work += Duration(50'000);
  const DdpRun late = work.play();
  CHECK(late.device_end(0) == even.device_end(0));
  CHECK(late.device_end(1) == even.device_end(1));
  CHECK(late.device_end(2) == even.device_end(2) + Duration(50'000));
}

TEST_CASE("join adds 14 scalar all-reduces to 4 iterations of a model with buffers") {
  for (const bool buffers : {true, false}) {
    CAPTURE(buffers);
    Joining joining(buffers);
    std::int64_t all = 0;
    for (int i = 0; i < 4; ++i) {
      CAPTURE(i);
      const DdpRun run = joining.next(i >= 2, i == 3);
      all += scalars(run);
      CHECK(scalars(run) == (buffers ? 3 : 2) + (i == 3 ? 2 : 0));
      // Finding the rank that sends the buffers blocks the host; so does the rebuild, twice.
      CHECK(run.host_syncs() == (buffers ? 1 : 0) + (i == 1 ? 2 : 0));
      // Joined or not, every rank takes part in every bucket; the last joiner sends the model.
      const VariantSizes sent = run.bytes(CollectiveKind::AllReduce);
      CHECK(sum(sent) - 4 * static_cast<double>(scalars(run)) == 3000);
      const VariantSizes broadcasts = run.bytes(CollectiveKind::Broadcast);
      CHECK(std::count(broadcasts.begin(), broadcasts.end(), 3000.0) == (i == 3 ? 1 : 0));
      CHECK(std::count(broadcasts.begin(), broadcasts.end(), 96.0) == (buffers ? 1 : 0));
    }
    CHECK(all == (buffers ? 3 * 4 + 2 : 2 * 4 + 2));
  }
}

TEST_CASE("dividing by the active ranks waits for their count in the first hook") {
  const auto slow_scalars = [](double bytes) {
    return Duration(bytes == 4 ? 5000 : static_cast<std::int64_t>(bytes));
  };
  Joining fixed(false);
  fixed.work.reduce = slow_scalars;
  const DdpRun initial = fixed.next(false, false);
  CHECK(initial.host_syncs() == 0);
  CHECK(initial.played.ranks[0].host_end == time_at(0));
  Joining joining(false);
  joining.work.reduce = slow_scalars;
  joining.work.options.divide_by_initial_world_size = false;
  const DdpRun active = joining.next(false, false);
  CHECK(active.host_syncs() == 1);
  CHECK(active.played.ranks[0].host_end == time_at(5000));
  CHECK(active.spans(kBackwardOp)[1].begin == time_at(5000));
}

TEST_CASE("a joined rank computes nothing and copies nothing out") {
  Joining joining(false);
  const DdpRun run = joining.next(true, false);
  CHECK(run.launches(kBackwardOp, 1) + run.launches(kForwardOp, 1) == 0);
  CHECK(run.launches(kCopyIn, 1) + run.launches(kCopyOut, 1) + run.launches(kOptimizer, 1) == 0);
  CHECK(run.launches(kZeroing, 1) == 2);
  CHECK(run.launches(kCopyOut, 0) == 3);
  // Its buckets wait for the rank that still computes.
  CHECK(run.launch(0, 1) < run.launch(0, 0));
  CHECK(run.start(0) == run.launch(0, 0));
}

TEST_CASE("ZeRO-1 reduces all gradients and broadcasts all parameters after the step") {
  DdpCase work({4000, 1000, 2000, 3000});
  work.optimizer = Duration(300);
  const VariantSizes plain = work.play().bytes(CollectiveKind::AllReduce);
  work.options.zero_stage = 1;
  const DdpRun run = work.play();
  CHECK(run.bytes(CollectiveKind::AllReduce) == plain);
  CHECK(run.bytes(CollectiveKind::Broadcast) == VariantSizes{4000, 1000, 2000, 3000});
  CHECK(run.start(-1) == run.spans(kOptimizer)[0].end);
  CHECK(run.device_end() == run.spans(kOptimizer)[0].end + Duration(10000));

  // Greedy by size: 4000 and 1000 to rank 0, 3000 and 2000 to rank 1.
  const auto owned = owned_elements(work.model, 1, 2);
  CHECK(owned == std::vector<std::int64_t>{1250, 1250});
  work.options.zero_broadcast_by_rank = true;
  work.step.ranks[0].owned_elements = owned[0];
  work.step.ranks[1].owned_elements = owned[1];
  CHECK(work.play().bytes(CollectiveKind::Broadcast) == VariantSizes{5000, 5000});
  // bf16 parameters: half the bytes an element.
  work.model.shapes = {{2000}, {500}, {1000}, {1500}};
  work.step.ranks[0].owned_elements = work.step.ranks[1].owned_elements = 2500;
  CHECK(work.play().bytes(CollectiveKind::Broadcast) == VariantSizes{5000, 5000});
}

TEST_CASE("the optimizer in backward updates a bucket when its all-reduce ends") {
  DdpCase work({1000, 1000, 1000, 1000});
  work.limits(1000, 1000);
  work.compute(Duration(500), Duration(3000));
  work.optimizer = Duration(400);
  work.memory = Duration(50);
  work.copy_out = Duration(70);
  const DdpRun plain = work.play();
  CHECK(plain.device_end() == time_at(12500 + 1000 + 70 + 400));
  work.options.optimizer_in_backward = true;
  const DdpRun run = work.play();
  const std::vector<TraceSpan> updates = run.spans(kOptimizer);
  REQUIRE(updates.size() == 4);
  for (int b = 0; b < 4; ++b) {
    const TraceSpan& update = updates[static_cast<std::size_t>(b)];
    CHECK(update.stream == kSideStream);
    CHECK(update.begin == run.end(b) + Duration(50));  // After the division.
  }
  CHECK(updates[0].end < time_at(12500));
  CHECK(run.launches(kCopyOut) == 0);
  CHECK(run.device_end() == time_at(12500 + 1000 + 50 + 400));
  // What is left of the updates when the last all-reduce has ended is no wait for it.
  CHECK(run.part(Phase::Wait) == Duration(1000));
  CHECK(run.part(Phase::Optimizer) == Duration(50 + 400));
  // One update a parameter, whatever the buckets.
  work.limits(1000, 10000);
  CHECK(work.play().launches(kOptimizer) == 4);
}

TEST_CASE("native mixed precision sends the reduce dtype; autocast sends fp32") {
  DdpCase work({4000, 4000, 4000});
  const auto sent = [&] { return work.play().bytes(CollectiveKind::AllReduce); };
  const VariantSizes fp32 = {4000, 8000};
  CHECK(sent() == fp32);  // Autocast: parameters and gradients stay fp32.
  work.options.mixed_param_dtype = work.options.mixed_reduce_dtype = Dtype::F16;
  // The buckets are still those of fp32 bytes.
  CHECK(sent() == VariantSizes{2000, 4000});
  work.options.mixed_reduce_dtype = Dtype::F32;
  CHECK(sent() == fp32);
}

TEST_CASE("mixed precision divides after the reduction, beside the compute stream") {
  DdpCase work({4000, 4000});
  work.limits(1000, 1000);
  work.memory = Duration(60);
  work.options.mixed_param_dtype = work.options.mixed_reduce_dtype = Dtype::F16;
  const DdpRun run = work.play();
  // Parameters are cast before the forward; then a division and a cast up a bucket.
  const std::vector<TraceSpan> casts = run.spans(kMemory);
  REQUIRE(casts.size() == 5);
  CHECK(run.spans(kForwardOp)[0].begin == casts[0].end);
  CHECK(casts[1].begin == run.end(0));
  CHECK(casts[1].stream == kSideStream);
  CHECK(run.device_end() == run.end(1) + Duration(120));
  // Neither the cast before the forward nor those after the all-reduces are waits for these.
  CHECK(run.part(Phase::Forward) == run.spans(kForwardOp).back().end - casts[0].begin);
  CHECK(run.part(Phase::Wait) == run.end(1) - run.spans(kBackwardOp).back().end);
  CHECK(run.part(Phase::CopyOut) == Duration(120));
  CHECK(run.launches(kCopyOut) == 0);
}

TEST_CASE("unequal batches: DDP gives the mean of means, weights the mean over samples") {
  // Batches of 3 and 1 samples whose gradients are 1 and 5 each: measured 3.0, global mean 2.0.
  const auto averaged = [](LossWeighting weighting) {
    return (loss_scale(weighting, 3, 4, 2) * 1.0 + loss_scale(weighting, 1, 4, 2) * 5.0) / 2;
  };
  CHECK(averaged(LossWeighting::None) == 3.0);
  CHECK(averaged(LossWeighting::Sample) == 2.0);
  const std::vector<BatchShape> shapes = {{3, 10, 30, 300}, {1, 10, 10, 100}};
  CHECK(loss_scales(LossWeighting::Sample, shapes) == std::vector<double>{1.5, 0.5});
  CHECK(loss_scales(LossWeighting::None, shapes) == std::vector<double>{1, 1});
}
