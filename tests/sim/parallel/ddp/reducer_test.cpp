#include "tests/oracles/reducer.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/model/bucket_assignment.h"
#include "sim/parallel/closed_form.h"
#include "tests/sim/parallel/ddp/random_step.h"

using namespace stepsim;

namespace {

using Lists = std::vector<std::vector<int>>;

std::vector<Op> ops_completing(const Lists& completes) {
  std::vector<Op> ops(completes.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ops[i].completes = completes[i];
  }
  return ops;
}

/// DDP's own bookkeeping: a counter of missing gradients per bucket, and the next bucket to launch.
std::vector<std::size_t> launches_by_counters(const Lists& completes, const Lists& buckets) {
  std::vector<std::size_t> pending;
  std::vector<std::size_t> bucket_of(100);
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    pending.push_back(buckets[b].size());
    for (const int parameter : buckets[b]) {
      bucket_of[static_cast<std::size_t>(parameter)] = b;
    }
  }
  std::vector<std::size_t> launches;
  for (std::size_t op = 0; op < completes.size(); ++op) {
    for (const int parameter : completes[op]) {
      --pending[bucket_of[static_cast<std::size_t>(parameter)]];
      while (launches.size() < buckets.size() && pending[launches.size()] == 0) {
        launches.push_back(op);
      }
    }
  }
  return launches;
}

/// 0..count-1 in random order, cut into random runs; empty runs only where allowed.
Lists random_runs(test::RandomSteps& draw, int count, bool allow_empty) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[draw.below(i + 1)]);
  }
  Lists runs(1);
  for (const int parameter : order) {
    runs.back().push_back(parameter);
    while (draw.below(2) == 0) {
      runs.emplace_back();
    }
  }
  if (!allow_empty) {
    runs.erase(
        std::remove_if(runs.begin(), runs.end(), [](const auto& run) { return run.empty(); }),
        runs.end());
  }
  return runs;
}

}  // namespace

TEST_CASE("buckets launch where counting down pending gradients launches them") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    test::RandomSteps draw(seed);
    const int parameters = static_cast<int>(1 + draw.below(20));
    const Lists completes = random_runs(draw, parameters, true);
    const Lists buckets = random_runs(draw, parameters, false);
    const auto launches = launch_after(ops_completing(completes), buckets);
    REQUIRE(launches == launches_by_counters(completes, buckets));
    REQUIRE(std::is_sorted(launches.begin(), launches.end()));
  }
}

TEST_CASE("a bucket ready early waits for the buckets before it") {
  const std::vector<Op> backward = ops_completing({{4}, {3}, {2}, {1}, {0}});
  CHECK(launch_after(backward, {{4}, {1, 2, 3}, {0}}) == std::vector<std::size_t>{0, 3, 4});
  // Ready order opposite to bucket order: all launch at the last gradient.
  CHECK(launch_after(backward, {{0}, {1, 2, 3}, {4}}) == std::vector<std::size_t>{4, 4, 4});
}

TEST_CASE("the one bucket of the first iteration launches after the last gradient") {
  const std::vector<Op> backward = ops_completing({{}, {3, 2}, {1}, {}, {0}, {}});
  const std::vector<Span> spans(6, op_span(Duration(0), Duration(10)));
  const auto initial = initial_buckets(std::vector<BucketParameter>(4, {400, "f32", false}),
                                       false,
                                       kDefaultFirstBucketBytes,
                                       kDefaultBucketCapBytes);
  REQUIRE(initial.size() == 1);
  const auto launches = launch_after(backward, {initial[0].parameters});
  CHECK(launches == std::vector<std::size_t>{4});
  const std::vector<Span> folded = fold_backward(spans, launches);
  CHECK(folded[0].device == Duration(50));
  CHECK(folded[1].device == Duration(10));
}

TEST_CASE("folding spans keeps the clocks at every launch") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    test::RandomSteps draw(seed);
    const int parameters = static_cast<int>(1 + draw.below(20));
    const Lists completes = random_runs(draw, parameters, true);
    const Lists buckets = random_runs(draw, parameters, false);
    std::vector<Span> spans;
    for (std::size_t i = 0; i < completes.size(); ++i) {
      spans.push_back(op_span(draw.duration(9), draw.duration(9)));
    }
    const auto launches = launch_after(ops_completing(completes), buckets);
    StepInput input;
    input.ranks.resize(1);
    input.ranks[0].backward = fold_backward(spans, launches);
    input.ranks[0].copy_out.resize(buckets.size());
    input.all_reduce.resize(buckets.size());
    const StepTimeline step = closed_form_step(input, std::vector<RankClock>(1));

    Duration host{0};
    Duration device{0};
    std::vector<SimTime> expected;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      host += spans[i].host;
      device = std::max(device, host) + spans[i].device;
      while (expected.size() < launches.size() && launches[expected.size()] == i) {
        expected.push_back(SimTime(device));
      }
    }
    REQUIRE(step.ranks[0].ready_at == expected);
    REQUIRE(step.ranks[0].backward_end == SimTime(device));
  }
}

TEST_CASE("a parameter without exactly one bucket and one op is refused") {
  const std::vector<Op> backward = ops_completing({{1}, {0}});
  CHECK_THROWS_WITH_AS((void)launch_after(backward, {{1}}),
                       "reducer: parameter 0 is in no bucket",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS((void)launch_after(backward, {{1, 0, 2}}),
                       "reducer: parameter 2 is in no op",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS((void)launch_after(backward, {{1, 0}, {1}}),
                       "reducer: parameter 1 is in two buckets",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS((void)launch_after(ops_completing({{1}, {0, 1}}), {{1, 0}}),
                       "reducer: parameter 1 is completed by two ops",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS((void)launch_after(backward, {{1, 0}, {}}),
                       "reducer: bucket 1 has no parameters",
                       std::invalid_argument);
}

TEST_CASE("launches that go back or past the ops are refused") {
  const std::vector<Span> ops(3);
  CHECK_THROWS_AS((void)fold_backward(ops, std::vector<std::size_t>{2, 1}), std::invalid_argument);
  CHECK_THROWS_AS((void)fold_backward(ops, std::vector<std::size_t>{3}), std::invalid_argument);
  CHECK(fold_backward(ops, std::vector<std::size_t>{1, 1, 2}).size() == 4);
}
