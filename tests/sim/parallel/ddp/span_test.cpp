#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "sim/parallel/step.h"
#include "tests/sim/parallel/ddp/random_step.h"

using namespace stepsim;

namespace {

struct LaunchedOp {
  Duration launch;
  Duration duration;
};

std::vector<LaunchedOp> random_ops(test::RandomSteps& draw, std::uint64_t longest) {
  std::vector<LaunchedOp> ops(draw.below(longest + 1));
  for (LaunchedOp& op : ops) {
    op = {draw.duration(20), draw.duration(20)};
  }
  return ops;
}

Span fold(const std::vector<LaunchedOp>& ops) {
  Span span;
  for (const LaunchedOp& op : ops) {
    span = then(span, op_span(op.launch, op.duration));
  }
  return span;
}

}  // namespace

TEST_CASE("a span moves the clocks as its ops do one by one") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    test::RandomSteps draw(seed);
    const std::vector<LaunchedOp> ops = random_ops(draw, 12);
    Duration host = draw.duration(100);
    Duration device = host + draw.duration(100);
    const Span span = fold(ops);
    const Duration span_host = host + span.host;
    const Duration span_device = std::max(device + span.device, host + span.critical);
    for (const LaunchedOp& op : ops) {
      host += op.launch;                              // The host launches the op,
      device = std::max(device, host) + op.duration;  // which runs when the device is free.
    }
    REQUIRE(span_host == host);
    REQUIRE(span_device == device);
  }
}

TEST_CASE("spans compose associatively, and an empty span changes nothing") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    test::RandomSteps draw(seed);
    const Span a = fold(random_ops(draw, 5));
    const Span b = fold(random_ops(draw, 5));
    const Span c = fold(random_ops(draw, 5));
    REQUIRE(then(then(a, b), c) == then(a, then(b, c)));
    REQUIRE(then(a, Span{}) == a);
    REQUIRE(then(Span{}, a) == a);
  }
}
