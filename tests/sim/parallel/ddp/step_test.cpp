#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "sim/parallel/closed_form.h"
#include "tests/oracles/step_simulator.h"

using namespace stepsim;

namespace {

SimTime nanosecond(std::int64_t ns) {
  return SimTime(Duration(ns));
}

/// Device work without launch cost.
Span work(std::int64_t ns) {
  return op_span(Duration(0), Duration(ns));
}

/// Two ranks, two buckets; rank 1 is slower by `delay` in its first backward span.
///
///   ns       0    10        30   40   50   60   70   80   90  100  110  120  130 137 140
///   rank 0   |data|forward  |bwd0|bwd1|.....waits for reduce 0.......|c0|....... |c1|opt|
///   rank 1   |data|forward  |bwd0 (+ 20)   |bwd1|..waits for reduce 0|c0|....... |c1|opt|
///   launch 0                     ^ rank 0  ^ rank 1 = 60
///   launch 1                          ^ rank 0  ^ rank 1 = 70
///   reduce 0                               |========= 50 ============|
///   reduce 1 (ready time_at 70, waits in line)                            |=== 20 ===|
///
/// reduce 0: last arrival 60, ends 110. Copy 0 takes 3: the device is idle again from 113 on.
/// reduce 1: last arrival 70, but the communicator is taken until 110; ends 130. Copy 1 takes 7.
/// Optimizer 3: the step ends time_at 140.
StepInput straggler(std::int64_t delay) {
  StepInput input;
  RankStep rank;
  rank.data = Duration(10);
  rank.forward = work(20);
  rank.backward = {work(10), work(10), Span{}};
  rank.copy_out = {work(3), work(7)};
  rank.optimizer = work(3);
  input.ranks = {rank, rank};
  input.ranks[1].backward[0] = work(10 + delay);
  input.all_reduce = {Duration(50), Duration(20)};
  return input;
}

const std::vector<RankClock> kZero(2);

}  // namespace

TEST_CASE("a straggler holds the first bucket back and the second waits in line behind it") {
  for (const StepTimeline& step :
       {simulate_step(straggler(20), kZero), closed_form_step(straggler(20), kZero)}) {
    CHECK(step.reduce_start == std::vector<SimTime>{nanosecond(60), nanosecond(110)});
    CHECK(step.reduce_end == std::vector<SimTime>{nanosecond(110), nanosecond(130)});
    const RankTimeline& fast = step.ranks[0];
    CHECK(fast.start == nanosecond(0));
    CHECK(fast.data_end == nanosecond(10));
    CHECK(fast.forward_end == nanosecond(30));
    CHECK(fast.ready_at == std::vector<SimTime>{nanosecond(40), nanosecond(50)});
    CHECK(fast.backward_end == nanosecond(50));
    CHECK(fast.exposed == Duration((110 - 50) + (130 - 113)));
    CHECK(fast.copy_out == Duration(3 + 7));
    CHECK(fast.optimizer == Duration(3));
    CHECK(fast.end == nanosecond(140));
    const RankTimeline& slow = step.ranks[1];
    CHECK(slow.ready_at == std::vector<SimTime>{nanosecond(60), nanosecond(70)});
    CHECK(slow.exposed == Duration((110 - 70) + (130 - 113)));
    CHECK(slow.end == nanosecond(140));
    CHECK(step.clocks[0] == RankClock{nanosecond(10), nanosecond(140)});
  }
}

TEST_CASE("the second all-reduce leaves the line exactly when the ranks arrive after the first") {
  // Rank 1 arrives with bucket 1 time_at bwd1 = d ns after its bucket 0; reduce 0 takes 50.
  const auto second_start = [](std::int64_t d) {
    StepInput input = straggler(20);
    input.ranks[1].backward[1] = work(d);
    return simulate_step(input, kZero).reduce_start[1];
  };
  CHECK(second_start(49) == nanosecond(110));  // Still in line.
  CHECK(second_start(50) == nanosecond(110));  // Arrives as the communicator becomes free.
  CHECK(second_start(51) == nanosecond(111));  // The communicator waits for the rank.
}

TEST_CASE("a rank slower by less than its slack delays nobody") {
  // Rank 0 alone is 5 behind: a delay of rank 1 counts beyond that.
  const auto end = [](std::int64_t delay) {
    StepInput input = straggler(delay);
    input.ranks[0].backward[0] = work(15);
    return simulate_step(input, kZero).ranks[0].end;
  };
  CHECK(end(4) == end(0));
  CHECK(end(5) == end(0));
  CHECK(end(6) == end(0) + Duration(1));
}

TEST_CASE("a host-bound backward launches time_at the pace of the host") {
  // Launch 10, kernel 4: H = 10, 20; C = 14, 24 (device idle between the kernels).
  StepInput input;
  RankStep rank;
  const Span op = op_span(Duration(10), Duration(4));
  rank.backward = {op, op, Span{}};
  rank.copy_out = {Span{}, Span{}};
  input.ranks = {rank};
  input.all_reduce = {Duration(1), Duration(1)};
  const StepTimeline step = simulate_step(input, std::vector<RankClock>(1));
  CHECK(step.ranks[0].ready_at == std::vector<SimTime>{nanosecond(14), nanosecond(24)});
  CHECK(step.clocks[0] == RankClock{nanosecond(20), nanosecond(25)});
  CHECK(step == closed_form_step(input, std::vector<RankClock>(1)));
}

TEST_CASE("on a GPU the host runs ahead and hides data loading behind the device") {
  // After step 1 the host stands time_at 10 and the device time_at 140; loading takes 10, so the
  // batch of step 2 is ready time_at 20, long before the device is free.
  StepInput input = straggler(20);
  const StepTimeline first = simulate_step(input, kZero);
  const StepTimeline hidden = simulate_step(input, first.clocks);
  CHECK(hidden.ranks[0].data_end == hidden.ranks[0].start);
  input.ranks[0].data = Duration(130);
  CHECK(simulate_step(input, first.clocks).ranks[0].data_end == nanosecond(140));
  input.ranks[0].data = Duration(131);
  CHECK(simulate_step(input, first.clocks).ranks[0].data_end == nanosecond(141));
}

TEST_CASE("on a CPU the host computes, so loading is never hidden") {
  StepInput input = straggler(20);
  input.host_is_device = true;
  const StepTimeline first = simulate_step(input, kZero);
  CHECK(first.clocks[0] == RankClock{nanosecond(140), nanosecond(140)});
  const StepTimeline second = simulate_step(input, first.clocks);
  CHECK(second.ranks[0].data_end == nanosecond(150));
  CHECK(second.ranks[0].end == nanosecond(280));
}

TEST_CASE("without buckets no rank waits for another") {
  StepInput input = straggler(20);
  input.all_reduce.clear();
  for (RankStep& rank : input.ranks) {
    rank.copy_out.clear();
    rank.backward = {work(rank.backward[0].device.count())};
  }
  const StepTimeline step = simulate_step(input, kZero);
  CHECK(step.ranks[0].end == nanosecond(10 + 20 + 10 + 3));
  CHECK(step.ranks[1].end == nanosecond(10 + 20 + 30 + 3));
  CHECK(step == closed_form_step(input, kZero));
}

TEST_CASE("a step whose shapes disagree is refused by both simulations") {
  const auto refused = [](const StepInput& input, const std::vector<RankClock>& clocks) {
    CHECK_THROWS_AS((void)simulate_step(input, clocks), std::invalid_argument);
    CHECK_THROWS_AS((void)closed_form_step(input, clocks), std::invalid_argument);
  };
  refused(StepInput{}, {});
  refused(straggler(0), std::vector<RankClock>(3));
  StepInput input = straggler(0);
  input.ranks[1].backward.pop_back();
  refused(input, kZero);
  input = straggler(0);
  input.ranks[1].copy_out.pop_back();
  refused(input, kZero);
  input = straggler(0);
  input.ranks[1].forward.critical = Duration(-1);
  refused(input, kZero);
  input = straggler(0);
  input.all_reduce[1] = Duration(-1);
  refused(input, kZero);
  CHECK_NOTHROW(check(straggler(0)));
}
