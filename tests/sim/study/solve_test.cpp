#include "sim/study/solve.h"

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/approx.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// Two ranks, forward 10 ms, backward 40 ms in two blocks, each with an all-reduce of 12 ms.
Scenario two_blocks() {
  return parse_scenario(test::replaced(test::kBucketBlocks,
                                       {{"steps = 4", "steps = 5\nwarmup_steps = 2"},
                                        {"\"9 ms\", \"9 ms\"", "\"12 ms\", \"12 ms\""},
                                        {"layers = 4", "layers = 2"},
                                        {"\"20 ms\"", "\"40 ms\""},
                                        {"batch_size = 2", "batch_size = 1"}}),
                        "blocks.toml");
}

Duration ms(double value) {
  return to_duration(value * 1e-3);
}

}  // namespace

TEST_CASE("the strength of interference is found from the step time") {
  // Two buckets. The first one's all-reduce C lies beside the second block's backward B = 20 ms and
  // takes max(B, C) + k min(B, C) with it; the second one's follows alone. With C = 12 ms and
  // k = 0.35 that is 10 + 20 + (20 + 0.35 * 12) + 12 ms.
  for (const double k : {0.0, 0.1, 0.35, 1.9}) {
    CAPTURE(k);
    const SolveRange range = parse_solve_range("interference.strength=0..2");
    const Solution solution = solve(two_blocks(), range, ms(62 + k * 12), {});
    REQUIRE(solution.found);
    CHECK(solution.value == Approx(k).epsilon(1e-4));
    CHECK(solution.step_ms == Approx(62 + k * 12).epsilon(1e-5));
    CHECK(solution.low_ms == Approx(62));
    CHECK(solution.high_ms == Approx(86));
  }
}

TEST_CASE("times with a unit, and step times that fall with the value") {
  const Solution forward =
      solve(two_blocks(), parse_solve_range("times.forward=0..1000 ms"), ms(75), {});
  REQUIRE(forward.found);
  CHECK(forward.value == Approx(23));
  // The larger the bandwidth of the gradients' copies, the shorter the step.
  const SolveRange copies = parse_solve_range("times.copy_bandwidth=1..100 GB/s");
  const double slow = solve(two_blocks(), copies, ms(1), {}).low_ms;
  const double fast = solve(two_blocks(), copies, ms(1), {}).high_ms;
  CHECK(slow > fast);
  const Solution middle = solve(two_blocks(), copies, ms((slow + fast) / 2), {});
  REQUIRE(middle.found);
  CHECK(middle.step_ms == Approx((slow + fast) / 2).epsilon(1e-4));
}

TEST_CASE("a time outside the range of predictions has no solution, and both ends are told") {
  const SolveRange range = parse_solve_range("interference.strength=0..1");
  for (const double time : {61.9, 74.1}) {
    const Solution solution = solve(two_blocks(), range, ms(time), {});
    CHECK_FALSE(solution.found);
    CHECK(solution.low_ms == Approx(62));
    CHECK(solution.high_ms == Approx(74));
  }
  CHECK_FALSE(solve(two_blocks(), parse_solve_range("host.hook=0..1 ns"), ms(62), {}).found);
}

TEST_CASE("ranges that make no sense are refused") {
  for (const char* text : {"interference.strength",
                           "interference.strength=2",
                           "=0..2",
                           "interference.strength=a..2",
                           "interference.strength=2..2",
                           "interference.strength=0..inf",
                           "times.forward=1 us..2 ms",
                           "times.forward=1 us..2"}) {
    CAPTURE(text);
    CHECK_THROWS_AS((void)parse_solve_range(text), InputError);
  }
  CHECK_THROWS_AS((void)solve(two_blocks(), parse_solve_range("ddp.zero_stage=0..3"), ms(62), {}),
                  InputError);
  CHECK_THROWS_AS(
      (void)solve(two_blocks(), parse_solve_range("interference.strenth=0..3"), ms(62), {}),
      InputError);
}
