#include "calibrate/samples/grid.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "calibrate/measure/measure.h"
#include "costmodel/base/input_error.h"
#include "costmodel/model/model_presets.h"
#include "tests/calibrate/measure/fake_backend.h"

namespace stepsim {
namespace {

const GridBox kBox{37, 250, 2, 40, 400, 2000};

}  // namespace

TEST_CASE("on a device the grid stands on both sides of a tile's step") {
  const std::vector<GridPoint> grid = make_grid(kBox, {}, 256);
  const std::vector<GridPoint> pairs = in_tile_pairs(grid, kBox);
  std::size_t whole = 0;
  for (const GridPoint& point : pairs) {
    CHECK(point.length >= kBox.min_length);
    CHECK(point.length <= kBox.max_length);
    if (point.tokens() % 128 == 0) {
      ++whole;
      const GridPoint past{point.samples, point.length + 1};
      CHECK((past.length > kBox.max_length ||
             std::find(pairs.begin(), pairs.end(), past) != pairs.end()));
    }
    CHECK(std::count(pairs.begin(), pairs.end(), point) == 1);
  }
  CHECK(3 * whole > pairs.size());
  const GridBox eights{40, 248, 2, 40, 400, 2000, 8};
  for (const GridPoint& point : in_tile_pairs(make_grid(eights, {}, 256), eights)) {
    CHECK(point.length % 8 == 0);
  }
}

TEST_CASE(
    "the grid covers the box in lengths and tokens and stays inside it, widened by a quarter") {
  const std::vector<GridPoint> grid = make_grid(kBox, {}, 256);
  REQUIRE(grid.size() > 20);
  std::int64_t fewest = 1 << 30;
  std::int64_t most = 0;
  std::int64_t shortest = 1 << 30;
  std::int64_t longest = 0;
  for (const GridPoint& point : grid) {
    CHECK(point.samples >= kBox.min_samples);
    CHECK(point.samples <= kBox.max_samples);
    CHECK(static_cast<double>(point.tokens()) >= 400 / 1.25);
    CHECK(static_cast<double>(point.tokens()) <= 2000 * 1.25);
    fewest = std::min(fewest, point.tokens());
    most = std::max(most, point.tokens());
    shortest = std::min(shortest, point.length);
    longest = std::max(longest, point.length);
  }
  CHECK(fewest <= 400);
  CHECK(most >= 2000);
  CHECK(shortest == 37);
  CHECK(longest == 250);
}

TEST_CASE("most lengths lie past a multiple of 16, by many different remainders, a few on one") {
  std::set<std::int64_t> lengths;
  for (const GridPoint& point : make_grid(kBox, {}, 0)) {
    lengths.insert(point.length);
  }
  std::set<std::int64_t> remainders;
  double aligned = 0;
  for (const std::int64_t length : lengths) {
    remainders.insert(length % 16);
    aligned += length % 16 == 0 ? 1 : 0;
  }
  CHECK(remainders.size() >= 8);
  CHECK(aligned >= 1);
  CHECK(aligned / static_cast<double>(lengths.size()) < 0.3);
}

TEST_CASE("a longest length on a multiple of 16 has a neighbour just below that is not") {
  GridBox capped = kBox;
  capped.max_length = 256;
  std::set<std::int64_t> lengths;
  for (const GridPoint& point : make_grid(capped, {}, 0)) {
    lengths.insert(point.length);
  }
  REQUIRE(lengths.size() > 2);
  CHECK(*lengths.rbegin() == 256);
  const std::int64_t below = *std::next(lengths.rbegin());
  CHECK(below > 256 - 16);
  CHECK(below % 16 != 0);
}

TEST_CASE("when all batches are padded to a multiple, the grid is") {
  GridBox box = kBox;
  box.min_length = 40;
  box.max_length = 248;
  box.length_step = 8;
  const std::vector<GridPoint> grid = make_grid(box, {}, 256);
  CHECK(grid.size() > 20);
  for (const GridPoint& point : grid) {
    CHECK(point.length % 8 == 0);
  }
}

TEST_CASE("no length exceeds what the model accepts") {
  for (const GridPoint& point : make_grid(kBox, {}, 200)) {
    CHECK(point.length <= 200);
  }
}

TEST_CASE("a coarser grid has fewer points and still reaches both ends") {
  const std::vector<GridPoint> fine = make_grid(kBox, {}, 0);
  const std::vector<GridPoint> coarse = make_grid(kBox, {4, 2}, 0);
  CHECK(coarse.size() * 2 < fine.size());
  CHECK(coarse.front().length == fine.front().length);
  CHECK(std::any_of(
      coarse.begin(), coarse.end(), [](const GridPoint& point) { return point.length == 250; }));
}

TEST_CASE("a point's samples are its length and others between 0.6 of it and it") {
  const std::vector<std::int64_t> lengths = point_lengths({50, 100});
  REQUIRE(lengths.size() == 50);
  CHECK(lengths.front() == 100);
  for (const std::int64_t length : lengths) {
    CHECK(length >= 60);
    CHECK(length <= 100);
  }
  CHECK(lengths == point_lengths({50, 100}));
  CHECK(std::set<std::int64_t>(lengths.begin(), lengths.end()).size() > 10);
  CHECK(point_lengths({3, 100}, false) == std::vector<std::int64_t>{100, 100, 100});
}

TEST_CASE("the box of plans spans their batches, and plans of different models are refused") {
  Plan plan;
  plan.policy = "fixed";
  plan.ranks = 1;
  plan.model = model_preset("tiny-classifier");
  plan.micro_batches = {{0, 0, 0, {1, 2}, {30, 40}, 1}, {1, 0, 0, {3}, {100}, 1}};
  CHECK(box_of_plans(std::vector<Plan>{plan}) == GridBox{40, 100, 1, 2, 80, 100, 20});
  Plan even = plan;
  even.micro_batches = {{0, 0, 0, {1, 2}, {40, 40}, 1}, {1, 0, 0, {3}, {100}, 1}};
  CHECK(box_of_plans(std::vector<Plan>{even}) == GridBox{40, 100, 1, 2, 80, 100, 20, false});
  CHECK(box_of_plans(std::vector<Plan>{even, plan}).padded);
  Plan other = plan;
  other.policy = "bucketed";
  other.model.layers += 1;
  CHECK_THROWS_WITH_AS(
      static_cast<void>(box_of_plans(std::vector<Plan>{plan, other})),
      "the plans of policies 'fixed' and 'bucketed' differ in model or ranks; measure them apart",
      InputError);
}

TEST_CASE("limits outside the model are refused with both numbers") {
  const TransformerConfig& model = model_preset("tiny-classifier");
  CHECK_THROWS_WITH_AS(static_cast<void>(box_of_limits(model, 512, 4096)),
                       "--max-length 512: tiny-classifier accepts at most 256 tokens",
                       InputError);
  CHECK_THROWS_AS(static_cast<void>(box_of_limits(model, 200, 100)), InputError);
  CHECK_THROWS_AS(static_cast<void>(box_of_limits(model, 0, 100)), InputError);
}

TEST_CASE("a larger budget buys a finer grid or more passes, never less of either") {
  MeasureRequest request = test::small_request("unused");
  const StepEstimate estimate{1e-3, 1e-10};
  std::size_t points = 0;
  double work = 0;
  for (const double budget : {5.0, 20.0, 60.0, 600.0}) {
    request.budget_seconds = budget;
    const MeasurePlan plan = choose_plan(request, estimate);
    CHECK(plan.points.size() >= points);
    CHECK(plan.passes >= 3);
    const double now = plan.passes * pass_seconds(plan, estimate);
    CHECK(now >= work * 0.99);
    points = plan.points.size();
    work = now;
  }
}

TEST_CASE("what shapes need is built on all cores, and ranks share them") {
  StepEstimate estimate;
  estimate.prepare_seconds = 0.5;
  estimate.prepare_cores = 16;
  CHECK(estimate.prepare(0) == 0);
  CHECK(estimate.prepare(1) == 0.5);
  CHECK(estimate.prepare(16) == 0.5);
  CHECK(estimate.prepare(64) == 2);
  estimate.prepare_cores = 0.5;  // Two ranks a core.
  CHECK(estimate.prepare(1) == 1);
  CHECK(estimate.prepare(8) == 8);
}

TEST_CASE("every pass visits the same points in an order of its own") {
  const MeasurePlan plan = choose_plan(test::small_request("unused"), {1e-3, 1e-10});
  const auto sorted = [](std::vector<GridPoint> points) {
    std::sort(points.begin(), points.end(), [](const GridPoint& a, const GridPoint& b) {
      return std::pair(a.length, a.samples) < std::pair(b.length, b.samples);
    });
    return points;
  };
  const std::vector<GridPoint> first = order_of_pass(plan, 0);
  CHECK(first == order_of_pass(plan, 0));
  CHECK(first != order_of_pass(plan, 1));
  CHECK(sorted(first) == sorted(order_of_pass(plan, 1)));
}

TEST_CASE("sizes of collectives double from 1 KiB past the largest bucket, and hold the buckets") {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  const MeasureRequest request = test::small_request("unused");
  const std::vector<std::int64_t> own = bucket_bytes(request.model, request.buckets);
  std::vector<std::int64_t> sizes = collective_sizes(request.model, request.buckets, 2);
  CHECK(sizes.front() == 1024);
  CHECK(sizes.back() == 64 * kMiB);
  CHECK(std::is_sorted(sizes.begin(), sizes.end()));
  for (const std::int64_t bytes : own) {
    CHECK(std::count(sizes.begin(), sizes.end(), bytes) == 1);
  }
  TransformerConfig large = request.model;
  large.family = ModelFamily::Blocks;
  large.layers = 1;
  large.block_elements = 20 * kMiB;  // 80 MiB of fp32: more than 64, less than 128.
  sizes = collective_sizes(large, {{0}}, 2);
  CHECK(sizes.back() == 128 * kMiB);
  CHECK(std::count(sizes.begin(), sizes.end(), 80 * kMiB) == 1);
  CHECK(collective_sizes(large, {{0}}, 1).empty());
}

TEST_CASE("every third pass has all collectives, the others small single all-reduces") {
  MeasureRequest request = test::small_request("unused");
  StepEstimate estimate{1e-3, 1e-10};
  estimate.collectives = {CollectiveKind::AllReduce, CollectiveKind::AllGather};
  const MeasurePlan plan = choose_plan(request, estimate);
  const auto has = [&plan](int pass, const CollectiveTask& task) {
    const std::vector<CollectiveTask> tasks = collectives_of_pass(plan, pass);
    return std::count(tasks.begin(), tasks.end(), task);
  };
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  for (const int pass : {0, 3}) {
    CHECK(has(pass, {CollectiveKind::AllReduce, 64 * kMiB, false}) == 1);
    CHECK(has(pass, {CollectiveKind::AllGather, 1024, false}) == 1);
    CHECK(has(pass, {CollectiveKind::AllGather, 4 * kMiB, true}) == 1);
    CHECK(has(pass, {CollectiveKind::AllGather, 8 * kMiB, true}) == 0);
  }
  CHECK(has(1, {CollectiveKind::AllReduce, 1024, false}) == 1);
  CHECK(has(1, {CollectiveKind::AllReduce, 64 * kMiB, false}) == 0);
  CHECK(has(1, {CollectiveKind::AllReduce, 1024, true}) == 0);
  CHECK(has(1, {CollectiveKind::AllGather, 1024, false}) == 0);
}

TEST_CASE("every parameter is in exactly one bucket of every pass") {
  MeasureRequest request = test::small_request("unused");
  const MeasurePlan plan = choose_plan(request, {1e-3, 1e-10});
  for (int pass = 0; pass < 3; ++pass) {
    std::multiset<int> seen;
    for (const auto& bucket : buckets_of_pass(plan, pass)) {
      seen.insert(bucket.begin(), bucket.end());
    }
    CHECK(seen.size() == parameters(plan.model).size());
    CHECK(std::set<int>(seen.begin(), seen.end()).size() == seen.size());
  }
  CHECK(buckets_of_pass(plan, 2).size() == parameters(plan.model).size());
}

}  // namespace stepsim
