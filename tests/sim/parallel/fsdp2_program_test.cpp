// FSDP2's schedule of gathers, copies and reductions, against cases worked by hand.
#include "sim/parallel/fsdp2/fsdp2_program.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "sim/engine/engine.h"

namespace stepsim {
namespace {

constexpr int kShards = 4;
constexpr std::int64_t kBlock = 400;  // Elements; the root has twice as many.
constexpr std::int64_t kOwned = 500;  // Of a rank's optimizer.

Duration ms(double value) {
  return Duration(std::llround(value * 1e6));
}

/// A root with an embedding (forward 2 ms) and a head (4 ms) around blocks (10 ms); backwards take
/// twice as long. Copies into a gather take 0.5 ms, out of it 1 ms, into a reduction 1 ms.
struct Worked {
  int blocks = 3;
  double gather = 4;  ///< Of a block; the root's takes `root_gather`.
  double reduce = 8;
  double root_gather = 6;
  double root_reduce = 12;
  double all_reduce = 10;
  double root_all_reduce = 15;
  double slow_gather = 0;  ///< Of the third block, where it is not 0.
  UnitHost host = {};
  bool on_cpu = false;
  Fsdp2Options options = {{kShards, 1, false}};
  bool root_freed = false;
  bool blocks_kept = false;
  std::vector<int> order = {};    ///< [op between the root's two] its unit; empty: block by block.
  std::vector<int> parents = {};  ///< [unit] The unit around it; empty: all in the root.
  int tensors = 0;                ///< Those that the optimizer works on.
  int micro_batches = 1;
  double host_copy = 0;       ///< Of a block's shard, with offload; the root's takes twice as long.
  double host_optimizer = 0;  ///< Of the whole shard.
};

/// The units of the ops between the root's embedding and its head.
std::vector<int> order_of(const Worked& worked) {
  if (!worked.order.empty()) {
    return worked.order;
  }
  std::vector<int> order;
  for (int block = 1; block <= worked.blocks; ++block) {
    order.push_back(block);
  }
  return order;
}

struct Ends {
  double forward = 0;
  double backward = 0;
  std::vector<std::pair<double, double>> gathers;  ///< From start to end, in order of issue.
  std::vector<std::pair<double, double>> reduces;
  std::vector<std::pair<double, double>> all_reduces;
  double forward_ms = 0;  ///< What the first rank's step is counted as, see RankTimeline.
  double backward_ms = 0;
  double exposed_ms = 0;
  double optimizer_ms = 0;
};

std::vector<ShardUnit> units_of(const Worked& worked) {
  std::vector<ShardUnit> units(static_cast<std::size_t>(worked.blocks) + 1);
  for (std::size_t i = 0; i < units.size(); ++i) {
    units[i].tensors = {{"", {i == 0 ? 2 * kBlock : kBlock + static_cast<std::int64_t>(4 * i)}}};
    units[i].reshard_after_forward = i == 0 ? worked.root_freed : !worked.blocks_kept;
  }
  return units;
}

TrainedModel model_of(const Worked& worked) {
  TrainedModel model;
  model.forward_unit = order_of(worked);
  model.forward_unit.insert(model.forward_unit.begin(), 0);
  model.forward_unit.push_back(0);
  model.unit_parent = worked.parents;
  model.backward_unit.assign(model.forward_unit.rbegin(), model.forward_unit.rend());
  model.completes.resize(model.backward_unit.size());
  model.shapes.resize(static_cast<std::size_t>(worked.tensors));
  return model;
}

MicroBatchWork batch_of(const Worked& worked) {
  MicroBatchWork batch;
  const auto kernel = [](double time) { return Kernel{Duration(0), ms(time)}; };
  batch.forward.push_back(kernel(2));
  for (std::size_t op = 0; op < order_of(worked).size(); ++op) {
    batch.forward.push_back(kernel(10));
  }
  batch.forward.push_back(kernel(4));
  for (auto op = batch.forward.rbegin(); op != batch.forward.rend(); ++op) {
    batch.backward.push_back({Duration(0), 2 * op->work});
  }
  return batch;
}

StepPrices prices_of(const Worked& worked) {
  StepPrices prices;
  prices.unit_host = worked.host;
  prices.elements = [](OpClass, std::int64_t, double) { return Kernel{}; };
  prices.host_copy = [=](double bytes) {
    return Kernel{Duration(0), ms(bytes < kBlock * 1.5 ? worked.host_copy : 2 * worked.host_copy)};
  };
  prices.host_optimizer = worked.host_optimizer / 1e3 / kOwned;  // Of one element, in seconds.
  prices.memory = [](double bytes, double) {
    return Kernel{Duration(0), ms(bytes < 4 * kBlock * 1.5 ? 0.5 : 1)};
  };
  prices.transfer = [=](CollectiveKind kind, double bytes, const RankGroup&) {
    const bool root =
        bytes > (kind == CollectiveKind::AllReduce ? 6 * kBlock / kShards : 6 * kBlock);
    switch (kind) {
      case CollectiveKind::AllGather:
        if (worked.slow_gather > 0 && bytes == 4.0 * (kBlock + 4 * 3)) {
          return ms(worked.slow_gather);
        }
        return ms(root ? worked.root_gather : worked.gather);
      case CollectiveKind::ReduceScatter:
        return ms(root ? worked.root_reduce : worked.reduce);
      default:
        return ms(root ? worked.root_all_reduce : worked.all_reduce);
    }
  };
  return prices;
}

Ends play(const Worked& worked) {
  const TrainedModel model = model_of(worked);
  const std::vector<ShardUnit> units = units_of(worked);
  const int ranks = kShards * worked.options.mesh.replicas;
  StepWork step;
  step.ranks.resize(static_cast<std::size_t>(ranks));
  for (RankWork& rank : step.ranks) {
    rank.micro_batches.assign(static_cast<std::size_t>(worked.micro_batches), batch_of(worked));
    rank.owned_elements = kOwned;
  }
  step.iterations.resize(static_cast<std::size_t>(worked.micro_batches));
  const StepProgram program = fsdp2_program(
      model, units, worked.options, {worked.on_cpu, worked.on_cpu}, prices_of(worked), step);
  EngineRules rules;
  rules.communicators = fsdp2_communicators(worked.options, 0, worked.on_cpu);
  const std::vector<RankClock> clocks(static_cast<std::size_t>(ranks));
  Engine engine(rules, clocks);
  const ExecutionTrace trace = engine.play(program.program);
  const auto at_ms = [](SimTime time) {
    return std::chrono::duration<double, std::milli>(time.time_since_epoch()).count();
  };
  Ends ends;
  ends.forward = at_ms(trace.ranks.front().marks[kForwardEnd]);
  ends.backward = at_ms(trace.ranks.front().device_end);  // The optimizer takes no time here.
  const RankTimeline line = timeline_of(trace, program).ranks.front();
  ends.forward_ms = to_ms(line.forward_end - line.data_end);
  ends.backward_ms = to_ms(line.backward_end - line.forward_end);
  ends.exposed_ms = to_ms(line.exposed);
  ends.optimizer_ms = to_ms(line.optimizer);
  for (std::size_t i = 0; i < program.uses.size(); ++i) {
    auto& list = program.uses[i].kind == CollectiveKind::AllGather       ? ends.gathers
                 : program.uses[i].kind == CollectiveKind::ReduceScatter ? ends.reduces
                                                                         : ends.all_reduces;
    if (program.program.collectives[i].communicator != 1 &&
        program.uses[i].kind != CollectiveKind::AllReduce && worked.options.mesh.replicates) {
      continue;  // Of another replica.
    }
    list.emplace_back(at_ms(trace.collectives[i].start), at_ms(trace.collectives[i].end));
  }
  return ends;
}

using Times = std::vector<std::pair<double, double>>;

TEST_CASE("fsdp2 schedule: three blocks, communication shorter than compute") {
  const Ends ends = play({});
  CHECK(ends.forward == doctest::Approx(47.5));
  CHECK(ends.backward == doctest::Approx(142.5));
  CHECK(
      ends.gathers ==
      Times{{0.5, 6.5}, {6.5, 10.5}, {10.5, 14.5}, {14.5, 18.5}, {34, 38}, {57, 61}, {85.5, 89.5}});
  CHECK(ends.reduces == Times{{77.5, 85.5}, {99.5, 107.5}, {121.5, 129.5}, {130.5, 142.5}});
}

TEST_CASE("fsdp2 schedule: a root that is freed, blocks that are kept") {
  Worked freed;
  freed.root_freed = true;
  const Ends ends = play(freed);
  CHECK(ends.forward == doctest::Approx(47.5));
  CHECK(ends.backward == doctest::Approx(143.5));
  REQUIRE(ends.gathers.size() == 8);
  CHECK(ends.gathers[4] == std::pair(34.0, 40.0));
  CHECK(ends.gathers[5] == std::pair(49.0, 53.0));
  Worked kept;
  kept.blocks_kept = true;
  CHECK(play(kept).forward == doctest::Approx(47.5));
  CHECK(play(kept).backward == doctest::Approx(139.5));
  CHECK(play(kept).gathers.size() == 4);
}

TEST_CASE("fsdp2 schedule: replicas reduce on a communicator of their own") {
  Worked worked;
  worked.options.mesh = {kShards, 2, true};
  const Ends ends = play(worked);
  CHECK(ends.forward == doctest::Approx(47.5));
  CHECK(ends.backward == doctest::Approx(157.5));
  REQUIRE(ends.all_reduces.size() == 4 * kShards);
  CHECK(ends.all_reduces[0] == std::pair(85.5, 95.5));
  CHECK(ends.all_reduces[1] == std::pair(107.5, 117.5));
  CHECK(ends.all_reduces[2] == std::pair(129.5, 139.5));
  CHECK(ends.all_reduces[3] == std::pair(142.5, 157.5));
}

TEST_CASE("fsdp2 schedule: one slow gather hides behind the compute of two blocks") {
  Worked worked;
  worked.blocks = 4;
  CHECK(play(worked).forward == doctest::Approx(58.5));
  CHECK(play(worked).backward == doctest::Approx(175.5));
  worked.slow_gather = 14;
  CHECK(play(worked).forward == doctest::Approx(58.5));
  CHECK(play(worked).backward == doctest::Approx(175.5));
  worked.slow_gather = 24;
  CHECK(play(worked).forward == doctest::Approx(64.5));
  CHECK(play(worked).backward == doctest::Approx(185.0));
}

TEST_CASE("fsdp2 schedule: communication longer than compute") {
  Worked worked;
  worked.gather = 15;
  worked.reduce = 30;
  const auto ends_with = [&](bool separate, int buffers) {
    worked.options.separate_reduce_group = separate;
    worked.options.reduce_buffers = buffers;
    const Ends ends = play(worked);
    return std::pair(ends.forward, ends.backward);
  };
  CHECK(ends_with(false, 1) == std::pair(66.5, 215.5));
  CHECK(ends_with(true, 1) == std::pair(66.5, 201.5));
  CHECK(ends_with(false, 2) == std::pair(66.5, 213.5));
  CHECK(ends_with(true, 2) == std::pair(66.5, 198.5));
}

TEST_CASE("fsdp2 schedule: periods of eight blocks") {
  Worked worked;
  worked.blocks = 8;
  worked.gather = 15;
  worked.reduce = 30;
  CHECK(play(worked).forward == doctest::Approx(141.5));
  CHECK(play(worked).backward == doctest::Approx(515.5));
  const Times reduces = play(worked).reduces;
  CHECK(reduces[4].first - reduces[3].first == doctest::Approx(45));
  worked.options.separate_reduce_group = true;
  CHECK(play(worked).backward == doctest::Approx(431.5));
  const Times apart = play(worked).reduces;
  CHECK(apart[4].first - apart[3].first == doctest::Approx(31));
  worked.options.separate_reduce_group = false;
  worked.blocks_kept = true;
  CHECK(play(worked).backward == doctest::Approx(430.5));
}

/// Random work on every rank and random collectives.
Worked random_case(std::mt19937& random) {
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  Worked worked;
  worked.blocks = std::uniform_int_distribution<int>(1, 6)(random);
  worked.gather = between(0, 30);
  worked.reduce = between(0, 30);
  worked.root_gather = between(0, 30);
  worked.root_reduce = between(0, 30);
  worked.all_reduce = between(0, 30);
  worked.root_all_reduce = between(0, 30);
  worked.root_freed = random() % 2 == 0;
  worked.blocks_kept = random() % 4 == 0;
  worked.options.reduce_buffers = 1 + static_cast<int>(random() % 3);
  return worked;
}

/// With no communication at all.
Worked without_communication(Worked worked) {
  worked.gather = worked.reduce = worked.root_gather = worked.root_reduce = 0;
  worked.all_reduce = worked.root_all_reduce = 0;
  return worked;
}

TEST_CASE("fsdp2 schedule: what must hold for any times") {
  std::mt19937 random(2026);
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    const Worked worked = random_case(random);
    const double step = play(worked).backward;
    CHECK(play(without_communication(worked)).backward <= step);
    Worked more = worked;
    more.options.reduce_buffers += 1;
    CHECK(play(more).backward <= step);
    Worked kept = worked;
    kept.blocks_kept = true;
    CHECK(play(kept).backward <= step);
    // One replica adds an all-reduce of one rank, which takes no time.
    Worked one = without_communication(worked);
    one.gather = worked.gather;
    one.reduce = worked.reduce;
    one.root_gather = worked.root_gather;
    one.root_reduce = worked.root_reduce;
    one.options.mesh = {kShards, 1, true};
    CHECK(play(one).backward == doctest::Approx(step));
  }
}

TEST_CASE("fsdp2 schedule: a host that is ahead hides its hooks, and one that is not decides") {
  Worked worked;
  const double step = play(worked).backward;
  worked.host.forward = worked.host.backward = ms(1);
  // Its first hook comes before the first gather; all others run beside the device.
  CHECK(play(worked).forward == doctest::Approx(47.5 + 1));
  CHECK(play(worked).backward == doctest::Approx(step + 1));
  worked.host.forward = ms(30);
  worked.host.backward = ms(60);
  CHECK(play(worked).forward >= 4 * 30);
  CHECK(play(worked).backward >= 4 * 30 + 4 * 60);
  worked.host = {};
  worked.host.optimizer_tensor = ms(300);
  CHECK(play(worked).forward == doctest::Approx(47.5));
}

TEST_CASE("fsdp2 schedule: on a CPU each collective holds its host, but for asynchronous gathers") {
  Worked worked;
  worked.on_cpu = true;
  // Gathers, copies into and out of them, and passes, one after another; then reductions likewise.
  const double forward = 6 + 3 * 4 + 4 * 0.5 + 4 * 1 + 36;
  const double backward = 3 * (4 + 0.5 + 1) + 72 + 4 * 1 + 3 * 8 + 12;
  CHECK(play(worked).forward == doctest::Approx(forward));
  CHECK(play(worked).backward == doctest::Approx(forward + backward));
  worked.options.async_unshard = true;
  // In the forward a gather is waited for at once; in the backward those of blocks 2 and 1 hide.
  CHECK(play(worked).forward == doctest::Approx(forward));
  CHECK(play(worked).backward < forward + backward);
  CHECK(play(worked).backward >= forward + backward - 3 * 4);
}

TEST_CASE("fsdp2 schedule: on a CPU all that the host does counts with the pass that it is in") {
  Worked worked;
  worked.on_cpu = true;
  const Ends plain = play(worked);
  // Copies into the gathers and out of them, and the passes; then copies into reductions, too.
  CHECK(plain.forward_ms == doctest::Approx(4 * 0.5 + 4 * 1 + 36));
  CHECK(plain.backward_ms == doctest::Approx(3 * (0.5 + 1) + 72 + 4 * 1));
  CHECK(plain.exposed_ms == doctest::Approx(6 + 3 * 4 + 3 * 4 + 3 * 8 + 12));
  worked.host.forward = ms(7);
  CHECK(play(worked).forward_ms == doctest::Approx(plain.forward_ms + 4 * 7));
  CHECK(play(worked).backward_ms == doctest::Approx(plain.backward_ms));
  worked.host.backward = ms(11);
  worked.host.optimizer_tensor = ms(13);
  worked.tensors = 5;
  const Ends ends = play(worked);
  CHECK(ends.forward_ms == doctest::Approx(plain.forward_ms + 4 * 7));
  CHECK(ends.backward_ms == doctest::Approx(plain.backward_ms + 4 * 11));
  CHECK(ends.exposed_ms == doctest::Approx(plain.exposed_ms));
  CHECK(ends.optimizer_ms == doctest::Approx(5 * 13));
}

TEST_CASE("fsdp2 schedule: offload copies shards in and gradients out, and the host updates") {
  Worked worked;
  worked.options.offload = true;
  CHECK(play(worked).forward == doctest::Approx(47.5));
  CHECK(play(worked).backward == doctest::Approx(142.5));
  // The root's shard is copied before its gather, its gradients after the last reduction; all
  // other copies hide. The host begins when the last gradient is there.
  worked.host_copy = 0.5;
  CHECK(play(worked).forward == doctest::Approx(47.5 + 1));
  CHECK(play(worked).backward == doctest::Approx(142.5 + 1 + 1));
  worked.host_optimizer = 10;
  const Ends ends = play(worked);
  CHECK(ends.backward == doctest::Approx(142.5 + 1 + 1 + 10));
  CHECK(ends.optimizer_ms == doctest::Approx(10));
  // Without offload neither takes any time.
  worked.options.offload = false;
  CHECK(play(worked).backward == doctest::Approx(142.5));
}

TEST_CASE("fsdp2 schedule: offload is never faster, and slower copies neither") {
  std::mt19937 random(29);
  for (int i = 0; i < 200; ++i) {
    CAPTURE(i);
    Worked worked = random_case(random);
    worked.micro_batches = 1 + i % 3;
    worked.options.mesh = {kShards, 1 + i % 2, i % 2 == 1};
    double before = play(worked).backward;
    worked.options.offload = true;
    worked.host_optimizer = 25;  // Adding a block's gradient takes 2 ms, on the device 1.
    for (const double copy : {0.0, 0.5, 2.0, 9.0, 40.0}) {
      worked.host_copy = copy;
      const double step = play(worked).backward - worked.host_optimizer;
      CHECK(step >= before - 1e-9);
      before = step;
    }
  }
}

TEST_CASE("fsdp2 schedule: a unit of several modules is gathered from the first to the last") {
  Worked worked;
  worked.blocks = 2;
  worked.order = {1, 2, 1};
  // The root, the list and the block; in the backward the list and the block once more.
  CHECK(play(worked).gathers.size() == 3 + 2);
  CHECK(play(worked).reduces.size() == 3);
  worked.order = {1, 2, 2};
  CHECK(play(worked).gathers.size() == 3 + 2);
}

TEST_CASE("fsdp2 schedule: a unit inside of another is entered after it, and left before") {
  Worked worked;
  worked.blocks = 2;
  worked.parents = {0, 0, 1};
  const auto collectives = [&] {
    const Ends ends = play(worked);
    return std::pair(ends.gathers.size(), ends.reduces.size());
  };
  for (const std::vector<int>& order : {std::vector<int>{1, 2, 1}, {2, 1}, {1, 2}, {2}}) {
    CAPTURE(order.size());
    worked.order = order;
    CHECK(collectives() == std::pair<std::size_t, std::size_t>(3 + 2, 3));
  }
  // The outer one is gathered first, though the inner one computes first.
  worked.order = {2, 1};
  worked.gather = 4;
  worked.slow_gather = 0;
  const Ends ends = play(worked);
  CHECK(ends.gathers[1].second <= ends.gathers[2].first);
}

TEST_CASE("fsdp2 schedule: one unit hides nothing") {
  Worked worked;
  worked.blocks = 0;
  const Ends ends = play(worked);
  // Copies in and out, 6 ms of forward, 12 of backward, and the copy into the reduction.
  CHECK(ends.forward == doctest::Approx(0.5 + 6 + 1 + 6));
  CHECK(ends.backward == doctest::Approx(0.5 + 6 + 1 + 6 + 12 + 1 + 12));
}

}  // namespace
}  // namespace stepsim
