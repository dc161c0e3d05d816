#include "sim/batching/policies/planned_shapes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/batching/random/random.h"
#include "tests/sim/batching/make_policy.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

PolicySpec planned_shapes(std::int64_t batch_size) {
  PolicySpec spec;
  spec.name = spec.kind = "planned_shapes";
  spec.parameters.set("batch_size", batch_size);
  return spec;
}

std::vector<std::int64_t> skewed_lengths(std::uint64_t seed, std::size_t count) {
  PythonRandom random(seed);
  std::vector<std::int64_t> lengths(count);
  for (auto& length : lengths) {
    length = 1 + static_cast<std::int64_t>(std::exp(random.uniform(0, 6)));
  }
  return lengths;
}

/// Samples and padded length.
using PlannedShape = std::pair<std::size_t, std::int64_t>;

PlannedShape shape_in(const EpochPlan& plan,
                      const std::vector<std::int64_t>& batch,
                      const std::vector<std::int64_t>& lengths) {
  const std::int64_t longest = max_of(
      batch, [&](std::int64_t id) { return lengths[at(id)]; }, std::int64_t{0});
  return {batch.size(), padded_to_rung(longest, plan.pad_to_lengths)};
}

/// [step] what all ranks have; checks that they have the same.
std::vector<PlannedShape> shapes_of_steps(const EpochPlan& plan,
                                          const std::vector<std::int64_t>& lengths) {
  std::vector<PlannedShape> shapes;
  for (std::size_t step = 0; step < plan.batches.front().size(); ++step) {
    std::set<PlannedShape> in_step;
    for (const Batches& batches : plan.batches) {
      REQUIRE(batches.size() == plan.batches.front().size());
      in_step.insert(shape_in(plan, batches[step], lengths));
    }
    CHECK(in_step.size() == 1);
    shapes.push_back(*in_step.begin());
  }
  return shapes;
}

}  // namespace

TEST_CASE("planned shapes: each sample once, one shape a step, few shapes, equal times") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const auto lengths = skewed_lengths(seed, 300 + seed * 13);
    PolicyInput input;
    input.lengths = lengths;
    input.ranks = static_cast<int>(1 + seed % 4);
    input.epoch = static_cast<int>(seed % 3);
    PolicySpec spec = planned_shapes(2 + static_cast<std::int64_t>(seed % 5));
    const std::int64_t most = 1 + static_cast<std::int64_t>(seed % 7);
    spec.parameters.set("shapes", most);
    const BatchingPolicy policy = make_policy(spec);
    const EpochPlan plan = policy.epoch(input);
    CHECK(plan == policy.epoch(input));
    CHECK(std::ssize(plan.pad_to_lengths) <= most);
    CHECK(plan.pad_to_lengths.back() == *std::ranges::max_element(lengths));
    const auto shapes = shapes_of_steps(plan, lengths);
    CHECK(std::ssize(std::set(shapes.begin(), shapes.end())) <= most);
    std::map<std::int64_t, int> uses;
    for (const Batches& batches : plan.batches) {
      for (const auto& batch : batches) {
        for (const std::int64_t sample : batch) {
          ++uses[sample];
        }
      }
    }
    CHECK(uses.size() == lengths.size());
    const std::size_t largest = max_of(shapes, &PlannedShape::first, std::size_t{0});
    CHECK(sum_of(uses, [](const auto& use) { return use.second - 1; }) <
          static_cast<int>(largest + plan.pad_to_lengths.size()) * input.ranks);
    // Without costs the padded tokens of the rungs' batches are as equal as whole samples allow.
    std::map<std::int64_t, std::size_t> samples;
    for (const PlannedShape& shape : shapes) {
      samples[shape.second] = std::max(samples[shape.second], shape.first);
    }
    std::int64_t tokens = 0;
    for (const auto& [length, count] : samples) {  // One sample cannot be divided.
      tokens = std::max(tokens, count > 1 ? length * static_cast<std::int64_t>(count) : 0);
    }
    for (const auto& [length, count] : samples) {
      const bool only_at_the_end = std::ranges::count(shapes, PlannedShape{count, length}) == 1;
      CHECK((length * (static_cast<std::int64_t>(count) + 1) > tokens || only_at_the_end));
    }
    PolicyInput next = input;
    ++next.epoch;
    CHECK(policy.epoch(next).pad_to_lengths == plan.pad_to_lengths);
  }
}

TEST_CASE("planned shapes: a dearer shape makes fewer of them, and none is for nothing") {
  const auto lengths = skewed_lengths(7, 2000);
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = 2;
  input.step_cost = [](const BatchShape& shape) { return shape.padded_tokens() * 1000; };
  std::vector<std::ptrdiff_t> rungs;
  for (const double seconds : {1e-9, 1e-3, 1e-2, 10.0}) {
    input.shape_seconds = seconds;
    rungs.push_back(std::ssize(make_policy(planned_shapes(8)).epoch(input).pad_to_lengths));
  }
  CHECK(std::ranges::is_sorted(rungs, std::greater<>()));
  CHECK(rungs.front() > 100);
  CHECK(rungs.back() == 1);
  CHECK(rungs[1] > rungs[2]);
  input.shape_seconds = 0;  // Nothing is known of it.
  CHECK(std::ssize(make_policy(planned_shapes(8)).epoch(input).pad_to_lengths) == 16);
}

TEST_CASE("planned shapes: an epoch has about samples / batch_size batches a rank") {
  const auto lengths = skewed_lengths(11, 4000);
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = 4;
  for (const std::int64_t batch_size : {4, 16, 32}) {
    const EpochPlan plan = make_policy(planned_shapes(batch_size)).epoch(input);
    const double wanted = 4000.0 / 4 / static_cast<double>(batch_size);
    CHECK(std::abs(static_cast<double>(plan.batches[0].size()) - wanted) < 0.1 * wanted + 8);
  }
}

TEST_CASE("planned shapes: budget, multiples, drop_last, and what cannot be planned") {
  const auto lengths = skewed_lengths(3, 501);
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = 2;
  PolicySpec spec = planned_shapes(16);
  spec.parameters.set("max_tokens", std::int64_t{512});
  spec.parameters.set("length_multiple", std::int64_t{8});
  const EpochPlan plan = make_policy(spec).epoch(input);
  for (const std::int64_t rung : plan.pad_to_lengths) {
    CHECK(rung % 8 == 0);
  }
  for (const PlannedShape& shape : shapes_of_steps(plan, lengths)) {
    CHECK(static_cast<std::int64_t>(shape.first) * shape.second <= 512);
  }
  input.sampler.drop_last = true;
  const EpochPlan dropped = make_policy(spec).epoch(input);
  CHECK(dropped.batches[0].size() + 1 == plan.batches[0].size());

  spec.parameters.set("max_tokens", std::int64_t{200});
  CHECK_THROWS_WITH_AS(
      (void)make_policy(spec).epoch(input),
      doctest::Contains("padded to a multiple of 8, does not fit into 200; cut the lengths"),
      InputError);
  PolicySpec padded = planned_shapes(16);
  padded.pad_to_multiple_of = 8;
  CHECK_THROWS_WITH_AS(
      (void)make_policy(padded),
      doctest::Contains("planned_shapes chooses by itself what it pads to; leave it out"),
      InputError);
}
