#include "calibrate/samples/plan_shapes.h"

#include <algorithm>
#include <utility>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

using ShapePair = std::pair<std::int64_t, std::int64_t>;

/// A plan with one batch of each of these shapes.
Plan plan_of_shapes(const std::string& policy, const std::vector<ShapePair>& shapes) {
  Plan plan;
  plan.policy = policy;
  plan.ranks = 1;
  for (const auto& [samples, length] : shapes) {
    MicroBatch batch;
    batch.step = plan.steps++;
    batch.lengths.assign(static_cast<std::size_t>(samples), (length + 1) / 2);
    if (samples > 0) {
      batch.lengths.front() = length;
    }
    plan.micro_batches.push_back(batch);
  }
  return plan;
}

bool is_chosen(const std::vector<PlanShape>& chosen, std::int64_t samples, std::int64_t length) {
  return std::ranges::any_of(chosen, [&](const PlanShape& shape) {
    return shape.samples == samples && shape.length == length;
  });
}

/// Eight samples of 16 to 255 tokens.
std::vector<ShapePair> fixed_shapes() {
  std::vector<ShapePair> shapes;
  for (std::int64_t length = 16; length < 256; ++length) {
    shapes.emplace_back(8, length);
  }
  return shapes;
}

/// Returns one shape for each length from 16 to 255: as many samples as 1024 tokens hold.
std::vector<ShapePair> budget_shapes() {
  std::vector<ShapePair> shapes;
  for (std::int64_t length = 16; length < 256; ++length) {
    shapes.emplace_back(1024 / length, length);
  }
  return shapes;
}

}  // namespace

TEST_CASE("chosen shapes hold the corners and leave no batch of the plans far away") {
  const std::vector<Plan> plans = {plan_of_shapes("fixed", fixed_shapes()),
                                   plan_of_shapes("budget", budget_shapes())};
  const std::vector<PlanShape> chosen = choose_plan_shapes(plans, 24);
  CHECK(chosen.size() == 24);
  CHECK(is_chosen(chosen, 8, 255));  // The most tokens and the largest attention.
  CHECK(is_chosen(chosen, 64, 16));  // The most samples.
  CHECK(is_chosen(chosen, 8, 16));   // The fewest tokens.
  CHECK(is_chosen(chosen, 8, 136));  // The middle of the fixed batches.
  const auto has_fewest = [](const PlanShape& shape) { return shape.samples == 4; };
  CHECK(std::ranges::any_of(chosen, has_fewest));
  for (std::size_t i = 0; i + 1 < chosen.size(); ++i) {
    CHECK(chosen[i].tokens() * chosen[i].length >= chosen[i + 1].tokens() * chosen[i + 1].length);
  }
  for (const PlanShape& shape : chosen) {
    CHECK(std::ssize(shape.lengths) == shape.samples);
    CHECK(std::ranges::max(shape.lengths) == shape.length);
  }
  // Two curves of a factor 16, one of which rises as fast as the other falls.
  const ShapeDistance distance = distance_to(chosen, plans);
  CHECK(distance.largest < 1.3);
  CHECK(distance.median < distance.largest);
  CHECK(distance_to(choose_plan_shapes(plans, 100), plans).largest < distance.largest);
}

TEST_CASE("a shape near which many batches are runs more often, but not without end") {
  std::vector<ShapePair> shapes = fixed_shapes();
  shapes.insert(shapes.end(), 60, {8, 255});
  const auto runs_of = [](const std::vector<PlanShape>& chosen) {
    return std::ranges::max_element(chosen, {}, &PlanShape::runs);
  };
  // 300 batches and 10 shapes, 60 and a tenth of the others at the longest.
  const auto some = choose_plan_shapes(std::vector{plan_of_shapes("a", shapes)}, 10);
  CHECK(runs_of(some)->length == 255);
  CHECK(runs_of(some)->runs >= 2);
  CHECK(runs_of(some)->runs <= 4);
  shapes.insert(shapes.end(), 5000, {8, 255});
  const auto many = choose_plan_shapes(std::vector{plan_of_shapes("a", shapes)}, 10);
  CHECK(runs_of(many)->runs == kMostRuns);
  CHECK(std::ranges::min(many, {}, &PlanShape::runs).runs == 1);
}

TEST_CASE("few different batches give few shapes, and empty ones none") {
  const std::vector<Plan> plans = {plan_of_shapes("a", {{4, 10}, {4, 10}, {0, 0}, {2, 7}})};
  const std::vector<PlanShape> chosen = choose_plan_shapes(plans, 24);
  REQUIRE(chosen.size() == 2);
  CHECK(chosen[0].lengths == std::vector<std::int64_t>{10, 5, 5, 5});
  CHECK(chosen[1].samples == 2);
  CHECK(distance_to(chosen, plans).largest == 1);
}

TEST_CASE("shapes are chosen of plans with the same ranks only") {
  std::vector<Plan> plans = {plan_of_shapes("a", {{4, 10}}), plan_of_shapes("b", {{4, 10}})};
  plans[1].ranks = 2;
  CHECK_THROWS_AS((void)choose_plan_shapes(plans, 24), InputError);
  CHECK_THROWS_AS((void)choose_plan_shapes({}, 24), InputError);
}

}  // namespace stepsim
