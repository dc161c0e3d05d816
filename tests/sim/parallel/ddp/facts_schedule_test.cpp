// Facts of DistributedDataParallel: what happens when in one iteration.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/sim/parallel/ddp/ddp_fixture.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

using BucketSizes = std::vector<double>;

constexpr std::int64_t kMebiElements = std::int64_t{1} << 20;

/// The measured model of the table of collectives: 5 parameters, 3 buffers of one dtype (one
/// coalesced broadcast), sized so that the rebuild makes 2 buckets and find_unused 3.
DdpCase five_parameters() {
  DdpCase one({5000, 4000, 6000, 400, 400});
  one.model.buffer_bytes = {96};
  return one;
}

/// One training iteration after another, each its own step.
class Iterations {
 public:
  Iterations(DdpCase work, IterationOptions options) : work_(std::move(work)), sequence_(options) {
    work_.limits(1000, 10000, options.find_unused_parameters && !options.static_graph);
  }

  DdpRun next(bool synchronises = true) {
    work_.step.iterations = {sequence_.next(synchronises)};
    return work_.play();
  }

  DdpCase& work() { return work_; }

 private:
  DdpCase work_;
  IterationSequence sequence_;
};

/// Collectives of four iterations: {broadcasts, all-reduces} of each.
std::vector<std::pair<std::size_t, std::size_t>> collectives_of_four(IterationOptions options) {
  Iterations iterations(five_parameters(), options);
  std::vector<std::pair<std::size_t, std::size_t>> counts;
  for (int i = 0; i < 4; ++i) {
    const DdpRun run = iterations.next();
    counts.emplace_back(run.bytes(CollectiveKind::Broadcast).size(),
                        run.bytes(CollectiveKind::AllReduce).size());
  }
  return counts;
}

/// Most collectives that move data at the same time.
int most_in_flight(const DdpRun& run) {
  int most = 0;
  for (const CollectiveTrace& one : run.played.collectives) {
    most = std::max(most,
                    static_cast<int>(std::count_if(run.played.collectives.begin(),
                                                   run.played.collectives.end(),
                                                   [&](const CollectiveTrace& other) {
                                                     return other.start <= one.start &&
                                                            one.start < other.end;
                                                   })));
  }
  return most;
}

}  // namespace

TEST_CASE("buckets launch in order, each at the latest ready time up to it") {
  // Buckets [4] [3 2] [1 0], gradients of 4, 3, 2, 1, 0 at 1500, 2500, ... 5500 ns.
  DdpCase in_order({1000, 1000, 1000, 1000, 1000});
  in_order.limits(1000, 2000);
  const DdpRun run = in_order.play();
  CHECK(run.launch(0) == time_at(1500));
  CHECK(run.launch(1) == time_at(3500));
  CHECK(run.launch(2) == time_at(5500));
  // Gradients in the order 2, 4, 0, 1, 3: bucket 0 is ready at 2500, bucket 1 at 5500, bucket 2 at
  // 4500 but behind bucket 1.
  DdpCase mixed = in_order;
  mixed.model.completes = {{2}, {4}, {0}, {1}, {3}};
  const DdpRun blocked = mixed.play();
  CHECK(blocked.launch(0) == time_at(2500));
  CHECK(blocked.launch(1) == time_at(5500));
  CHECK(blocked.launch(2) == time_at(5500));
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(blocked.program.uses[c].bucket == static_cast<int>(c));
  }
}

TEST_CASE("launches of the measured model with three buckets, in three orders of use") {
  // Five gradients 50 ms apart, the first at 50; buckets [4] [1 2 3] [0] of the constructor.
  const std::int64_t ms = 1'000'000;
  DdpCase work({4 * kMebiElements,
                8 * kMebiElements,
                16 * kMebiElements,
                2 * kMebiElements,
                kMebiElements / 2});
  work.buckets.rebuilt = {
      {{4}, kMebiElements}, {{1, 2, 3}, 25 * kMebiElements}, {{0}, 25 * kMebiElements}};
  work.compute(Duration(0), Duration(50 * ms));
  const auto launches = [&] {
    const DdpRun run = work.play();
    return std::vector<SimTime>{run.launch(0), run.launch(1), run.launch(2)};
  };
  CHECK(launches() == std::vector<SimTime>{time_at(50 * ms), time_at(200 * ms), time_at(250 * ms)});
  work.model.completes = {{0}, {1}, {2}, {3}, {4}};
  CHECK(launches() ==
        std::vector<SimTime>{time_at(250 * ms), time_at(250 * ms), time_at(250 * ms)});
  work.buckets.rebuilt = {
      {{0}, kMebiElements}, {{1, 2, 3}, 25 * kMebiElements}, {{4}, 25 * kMebiElements}};
  CHECK(launches() == std::vector<SimTime>{time_at(50 * ms), time_at(200 * ms), time_at(250 * ms)});
}

TEST_CASE("gradients in the opposite order of the buckets: all launch at the last one") {
  DdpCase work({1000, 1000, 1000, 1000});
  work.limits(1000, 1000);
  work.model.completes = {{0}, {1}, {2}, {3}};
  const DdpRun run = work.play();
  for (int bucket = 0; bucket < 4; ++bucket) {
    CHECK(run.launch(bucket) == time_at(4500));
  }
  CHECK(run.end(3) == time_at(4500 + 4 * 1000));
}

TEST_CASE("nothing overlaps in the first iteration, nor in two of static_graph") {
  for (const bool static_graph : {false, true}) {
    CAPTURE(static_graph);
    Iterations iterations(DdpCase(std::vector<std::int64_t>(8, 1000)),
                          {static_graph, false, false});
    iterations.work().limits(1000, 2000);
    iterations.work().prices.enqueue = Duration(5);
    const int alone = static_graph ? 2 : 1;
    SimTime first_end;
    for (int i = 0; i < 5; ++i) {
      CAPTURE(i);
      const DdpRun run = iterations.next();
      // The backward ends at 500 + 8 x 1000.
      if (i < alone) {
        CHECK(run.bytes(CollectiveKind::AllReduce).back() == 8000);
        CHECK(run.launch(0) >= time_at(8500));
        first_end = i == 0 ? run.device_end() : first_end;
      } else {
        CHECK(run.launch(0) < time_at(8500));
        CHECK(run.program.uses.back().bucket == 4);
      }
      if (i >= alone + 1) {
        CHECK(first_end >= run.device_end());
      }
    }
  }
}

TEST_CASE("the static graph's first iteration sends the bitmap, then the bucket") {
  Iterations iterations(five_parameters(), {true, false, false});
  const DdpRun run = iterations.next();
  CHECK(run.bytes(CollectiveKind::AllReduce) == BucketSizes{20, 15800});
  CHECK(run.start(0) >= run.end(-1));
}

TEST_CASE("the rebuild adds two broadcasts with host syncs, once") {
  Iterations iterations(five_parameters(), {});
  const BucketSizes none;
  CHECK(iterations.next().bytes(CollectiveKind::Broadcast) == none);
  const DdpRun run = iterations.next();
  // 5 indices and the number of buckets, then the sizes of 2 buckets, int32.
  CHECK(run.bytes(CollectiveKind::Broadcast) == BucketSizes{24, 8});
  CHECK(run.program.uses[0].kind == CollectiveKind::Broadcast);
  CHECK(run.program.uses[1].kind == CollectiveKind::Broadcast);
  CHECK(run.host_syncs() == 2);
  // The second broadcast starts after the first has come back to the host, the forward after both:
  // 24 + 8 ns.
  CHECK(run.played.collectives[1].start == time_at(24));
  CHECK(run.spans(kForwardOp).front().begin == time_at(32));
  CHECK(run.played.ranks[0].host_end == time_at(32));
  for (int i = 0; i < 3; ++i) {
    const DdpRun later = iterations.next();
    CHECK(later.bytes(CollectiveKind::Broadcast) == none);
    CHECK(later.host_syncs() == 0);
  }
}

TEST_CASE("the host waits out the sync latency of both rebuild broadcasts") {
  Iterations iterations(five_parameters(), {});
  iterations.work().prices.sync = Duration(100);
  (void)iterations.next();
  CHECK(iterations.next().spans(kForwardOp).front().begin == time_at(24 + 100 + 8 + 100));
}

TEST_CASE("iterations under no_sync record nothing: the rebuild waits for a synced backward") {
  IterationSequence sequence({});
  const std::vector<std::pair<bool, bool>> synchronises_rebuilds = {
      {false, false}, {false, false}, {true, false}, {false, true}, {true, false}};
  for (const auto& [synchronises, rebuilds] : synchronises_rebuilds) {
    CHECK(sequence.next(synchronises).rebuilds == rebuilds);
  }
}

TEST_CASE("the rebuild between two synced micro-batches of one step changes the second only") {
  DdpCase work = five_parameters();
  IterationSequence sequence({});
  work.step.iterations = {sequence.next(), sequence.next()};
  work.compute(Duration(500), Duration(1000));
  const DdpRun run = work.play();
  CHECK(run.bytes(CollectiveKind::AllReduce) == BucketSizes{15800, 6800, 9000});
  CHECK(run.bytes(CollectiveKind::Broadcast) == BucketSizes{24, 8});
}

TEST_CASE("unused parameters are ready at the first hook, and a bitmap follows the buckets") {
  // Buckets [2 1] [0]; parameter 1 is unused, so the first bucket is complete with gradient 2, at
  // 1500. Host: 3 ops to traverse at 100 each.
  DdpCase work({1000, 1000, 1000});
  work.buckets.rebuilt = {{{2, 1}, 2000}, {{0}, 2000}};
  work.options.unused_parameters = {1};
  IterationSequence sequence({false, true, false});
  work.step.iterations = {sequence.next()};
  work.step.iterations[0].uses_rebuilt = true;
  CHECK(work.step.iterations[0].traverses_graph);
  const DdpRun run = work.play();
  CHECK(run.launch(0) == time_at(1500));
  CHECK(run.launch(1) == time_at(3500));
  CHECK(run.launches(kZeroing) == 1);
  CHECK(run.launches(kCopyIn) == 2);
  CHECK(run.bytes(CollectiveKind::AllReduce) == BucketSizes{2000, 1000, 12});
  CHECK(run.program.uses.back().bucket == -1);
  CHECK(run.start(-1) >= run.end(1));

  work.prices.traversal_per_op = Duration(700);
  CHECK(work.play().spans(kBackwardOp).front().begin == time_at(2100));
  // Every iteration has them, even when nothing is unused; then no host sync is needed.
  work.options.unused_parameters.clear();
  work.step.iterations = {sequence.next()};
  work.step.iterations[0].uses_rebuilt = true;
  CHECK(work.play().bytes(CollectiveKind::AllReduce) == BucketSizes{2000, 1000, 12});
  CHECK(work.play().host_syncs() == 0);
}

TEST_CASE("a bucket of unused parameters alone is launched before the first gradient's copy") {
  DdpCase work({1000, 1000});
  work.buckets.rebuilt = {{{0}, 1000}, {{1}, 1000}};
  work.options.unused_parameters = {0};
  work.step.iterations[0].traverses_graph = work.step.iterations[0].sends_bitmap = true;
  work.zeroing = Duration(10);
  work.copy_in = Duration(100);
  const DdpRun run = work.play();
  CHECK(run.launch(0) == time_at(1510));
  CHECK(run.launch(1) == time_at(1610));
  // A globally unused gradient is left alone: no copy-out, but the host looks at the bitmap first.
  CHECK(run.launches(kCopyOut) == 1);
  CHECK(run.host_syncs() == 1);
  CHECK(run.played.ranks[0].host_end >= run.end(-1));
}

TEST_CASE("NCCL has one collective of a group in flight, gloo at most two") {
  DdpCase work(std::vector<std::int64_t>(10, 3000));
  work.limits(1000, 1000);
  work.model.buffer_bytes = {4000, 5000};
  work.step.iterations[0].broadcasts_buffers = true;
  work.step.iterations[0].sends_bitmap = true;
  const DdpRun nccl = work.play();
  CHECK(nccl.program.uses.size() == 13);
  CHECK(most_in_flight(nccl) == 1);
  for (std::size_t c = 1; c < nccl.played.collectives.size(); ++c) {
    CHECK(nccl.played.collectives[c].start >= nccl.played.collectives[c - 1].end);
  }
  work.host.waits_for_collectives = work.host.is_device = true;
  CHECK(most_in_flight(work.play()) == 2);
}

TEST_CASE("the third of three gloo all-reduces waits for a worker") {
  // Launched together, 1000 each over shared links: the first two end at 2000 after the launch,
  // the third alone at 3000.
  DdpCase work({1000, 1000, 1000});
  work.limits(1000, 1000);
  work.model.completes = {{}, {}, {0, 1, 2}};
  work.host.waits_for_collectives = work.host.is_device = true;
  const DdpRun run = work.play();
  CHECK(run.start(2) == time_at(3500 + 2000));
  CHECK(run.end(0) == time_at(3500 + 2000));
  CHECK(run.end(1) == time_at(3500 + 2000));
  CHECK(run.end(2) == time_at(3500 + 3000));
}

TEST_CASE("an all-reduce waits for the stream's work before it and for all ranks' kernels") {
  DdpCase work({1000, 1000});
  work.limits(1000, 1000);
  work.copy_in = Duration(50);
  work.batch(1).backward[0].work = Duration(3000);
  const DdpRun run = work.play();
  // The host launches everything at 0; the copies count as work before the launch.
  CHECK(run.launch(0, 0) == time_at(1550));
  CHECK(run.launch(0, 1) == time_at(3550));
  CHECK(run.start(0) == time_at(3550));
  CHECK(run.launch(1, 0) == time_at(2600));
  CHECK(run.launch(1, 1) == time_at(4600));
  CHECK(run.start(1) == time_at(4600));
  // A late host: the launch itself is late.
  work.prices.enqueue = Duration(9000);
  CHECK(work.play().launch(0, 1) == time_at(9000));
}

TEST_CASE("the optimizer is behind the last all-reduce and copy-out") {
  DdpCase work({4000, 4000, 4000});
  work.limits(1000, 1000);
  work.copy_out = Duration(70);
  work.optimizer = Duration(300);
  const DdpRun nccl = work.play();
  REQUIRE(nccl.spans(kOptimizer).size() == 1);
  CHECK(nccl.end(2) == time_at(1500 + 12000));
  CHECK(nccl.spans(kOptimizer)[0].begin == time_at(13500 + 70));
  CHECK(nccl.device_end() == time_at(13500 + 70 + 300));
  // The host has enqueued all of it at once.
  CHECK(nccl.played.ranks[0].host_end == time_at(0));
  // With gloo the host blocks until the worker is done.
  work.host.waits_for_collectives = true;
  const DdpRun gloo = work.play();
  CHECK(gloo.played.ranks[0].host_end == gloo.end(2));
  CHECK(gloo.spans(kOptimizer)[0].begin >= gloo.end(2));
}

TEST_CASE("the copy-out of a bucket overlaps the next all-reduce; a bucket view has none") {
  DdpCase work({4000, 4000});
  work.limits(1000, 1000);
  work.copy_out = Duration(600);
  const DdpRun run = work.play();
  const std::vector<TraceSpan> copies = run.spans(kCopyOut);
  REQUIRE(copies.size() == 2);
  CHECK(copies[0].begin == run.end(0));
  CHECK(copies[0].end < run.end(1));
  CHECK(run.start(1) == run.end(0));
  CHECK(copies[1].begin == run.end(1));
  CHECK(run.device_end() == time_at(1500 + 8000 + 600));
  work.options.gradient_as_bucket_view = true;
  CHECK(work.play().launches(kCopyOut) == 0);
  CHECK(work.play().device_end() == time_at(1500 + 8000));
}

TEST_CASE("kernels of the reducer by bucket view, set_to_none and hook, as measured") {
  // Five parameters in two buckets. Copies: fused with the division, plain, or an in-place division
  // of each gradient, which all read and write the gradient once. Flat: divisions and casts of a
  // whole bucket.
  struct Row {
    bool view;
    bool set_to_none;
    CommunicationHook hook;
    int copies;
    int flat;
    int copies_out;
  };
  using Hook = CommunicationHook;
  const std::vector<Row> rows = {
      {false, true, Hook::None, 5, 0, 5},
      {false, false, Hook::None, 5, 0, 5},
      {false, true, Hook::AllReduce, 5, 2, 5},
      {false, false, Hook::AllReduce, 5, 2, 5},
      // A cast down, a division and a cast up of each bucket.
      {false, true, Hook::Fp16, 5, 6, 5},
      {false, false, Hook::Fp16, 5, 6, 5},
      {true, true, Hook::None, 5, 0, 0},
      {true, true, Hook::AllReduce, 5, 2, 0},
      {true, false, Hook::None, 5, 0, 0},
      {true, false, Hook::AllReduce, 0, 2, 0},
  };
  for (const Row& row : rows) {
    CAPTURE(row.view);
    CAPTURE(row.set_to_none);
    CAPTURE(name_of(row.hook));
    DdpCase work = five_parameters();
    work.options.gradient_as_bucket_view = row.view;
    work.options.set_to_none = row.set_to_none;
    work.options.hook = row.hook;
    const DdpRun run = work.play();
    CHECK(run.launches(kCopyIn) == row.copies);
    CHECK(run.launches(kMemory) == row.flat);
    CHECK(run.launches(kCopyOut) == row.copies_out);
    // Zeroing in place is what set_to_none saves.
    CHECK(run.launches(kZeroing) == (row.set_to_none ? 0 : 1));
  }
}

TEST_CASE("batched copies are one copy and one division a bucket, copy-outs stay") {
  DdpCase work = five_parameters();
  work.options.batched_grad_copy = true;
  const DdpRun run = work.play();
  CHECK(run.launches(kCopyIn) == 2);
  CHECK(run.launches(kMemory) == 2);
  CHECK(run.launches(kCopyOut) == 5);
  // Gradients that lie in the bucket are divided only.
  work.options.gradient_as_bucket_view = true;
  work.options.set_to_none = false;
  CHECK(work.play().launches(kCopyIn) == 0);
  CHECK(work.play().launches(kMemory) == 2);
}

TEST_CASE("with a hook the copies do not divide: the hook does, before each bucket's launch") {
  DdpCase work({1000, 1000, 1000});
  work.limits(1000, 2000);
  work.memory = Duration(200);
  CHECK(work.play().launch(0) == time_at(1500));
  work.options.hook = CommunicationHook::AllReduce;
  const DdpRun run = work.play();
  CHECK(run.launches(kCopyIn) == 3);
  CHECK(run.launches(kMemory) == 2);
  CHECK(run.launch(0) == time_at(1500 + 200));
  CHECK(run.launch(1) == time_at(3500 + 2 * 200));
  CHECK(run.bytes(CollectiveKind::AllReduce) == BucketSizes{1000, 2000});
  // A hook that sends nothing still gets its buckets filled and emptied.
  work.options.hook = CommunicationHook::Noop;
  CHECK(work.play().program.uses.empty());
  CHECK(work.play().launches(kCopyIn) == 3);
  CHECK(work.play().launches(kCopyOut) == 3);
}

TEST_CASE("buffers are broadcast iff the forward before was a synchronising training one") {
  // S = synchronising, N = under no_sync; measured sequence.
  const std::vector<std::pair<char, bool>> measured = {{'S', true},
                                                       {'S', true},
                                                       {'N', true},
                                                       {'N', false},
                                                       {'S', false},
                                                       {'N', true},
                                                       {'S', false},
                                                       {'S', true}};
  DdpCase work({1000, 1000});
  work.model.buffer_bytes = {96, 40};  // Two dtypes.
  Iterations iterations(work, {false, false, true});
  for (const auto& [kind, broadcasts] : measured) {
    const DdpRun run = iterations.next(kind == 'S');
    const BucketSizes sent = run.bytes(CollectiveKind::Broadcast);
    CHECK(std::count(sent.begin(), sent.end(), 96) == (broadcasts ? 1 : 0));
    CHECK(std::count(sent.begin(), sent.end(), 40) == (broadcasts ? 1 : 0));
  }
}

TEST_CASE("buffers are there before the forward runs, and the host does not wait") {
  DdpCase work({1000, 1000});
  work.model.buffer_bytes = {96, 40};
  work.step.iterations[0].broadcasts_buffers = true;
  work.memory = Duration(10);
  const DdpRun run = work.play();
  // Two dtypes, each flattened, broadcast and copied back.
  CHECK(run.spans(kForwardOp)[0].begin == time_at(10 + 96 + 10 + 10 + 40 + 10));
  CHECK(run.played.ranks[0].host_end == time_at(0));
}

TEST_CASE("collectives per iteration: default, find_unused_parameters, static_graph") {
  using Counts = std::vector<std::pair<std::size_t, std::size_t>>;
  CHECK(collectives_of_four({false, false, true}) == Counts{{1, 1}, {3, 2}, {1, 2}, {1, 2}});
  CHECK(collectives_of_four({false, true, true}) == Counts{{1, 4}, {1, 4}, {1, 4}, {1, 4}});
  CHECK(collectives_of_four({true, false, true}) == Counts{{1, 2}, {1, 1}, {3, 2}, {1, 2}});
  CHECK(collectives_of_four({true, true, true}) == Counts{{1, 2}, {1, 1}, {3, 2}, {1, 2}});
}
