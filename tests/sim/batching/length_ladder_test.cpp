// The optimal ladder of lengths equals the best of all ladders, tried one by one.
#include "sim/batching/algorithms/length_ladder.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;

namespace {

/// A whole number of seconds, so that sums are exact: it rises with both, but not in proportion.
double stepped_price(std::int64_t samples, std::int64_t length) {
  const std::int64_t tiles = (length + 2) / 3;
  return static_cast<double>(samples * tiles + length);
}

LadderProblem problem_of(const std::vector<LadderBatch>& batches, double shape_seconds) {
  LadderProblem problem;
  problem.batches = batches;
  problem.price = stepped_price;
  problem.shape_seconds = shape_seconds;
  return problem;
}

double total(const LengthLadder& ladder) {
  return ladder.compute_seconds + ladder.shape_seconds;
}

/// The ladder's figures, from its rungs alone.
LengthLadder figures_of(const LadderProblem& problem, std::vector<std::int64_t> rungs) {
  LengthLadder ladder;
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const LadderBatch& batch : problem.batches) {
    const std::int64_t padded = *std::ranges::lower_bound(rungs, batch.length);
    ladder.compute_seconds +=
        static_cast<double>(batch.count) * problem.price(batch.samples, padded);
    shapes.emplace(problem.key == ShapeKey::Length ? 0 : batch.samples, padded);
  }
  ladder.rungs = std::move(rungs);
  ladder.shapes = std::ssize(shapes);
  ladder.shape_seconds = static_cast<double>(ladder.shapes) * problem.shape_seconds;
  return ladder;
}

std::vector<std::int64_t> distinct_lengths(const std::vector<LadderBatch>& batches) {
  std::set<std::int64_t> lengths;
  for (const LadderBatch& batch : batches) {
    lengths.insert(batch.length);
  }
  return {lengths.begin(), lengths.end()};
}

/// The least total of all ladders whose rungs are lengths of the batches.
double least_total(const LadderProblem& problem, const std::vector<std::int64_t>& lengths) {
  double least = std::numeric_limits<double>::infinity();
  const unsigned below = static_cast<unsigned>(lengths.size()) - 1;
  for (unsigned chosen = 0; chosen < 1U << below; ++chosen) {
    std::vector<std::int64_t> rungs;
    for (unsigned i = 0; i < below; ++i) {
      if ((chosen >> i & 1U) != 0) {
        rungs.push_back(lengths[i]);
      }
    }
    rungs.push_back(lengths.back());
    if (std::ssize(rungs) <= problem.most_rungs.value_or(std::ssize(lengths))) {
      least = std::min(least, total(figures_of(problem, rungs)));
    }
  }
  return least;
}

std::vector<LadderBatch> random_batches(std::mt19937& random) {
  const auto draw = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<LadderBatch> batches(static_cast<std::size_t>(draw(1, 14)));
  for (LadderBatch& batch : batches) {
    batch = {draw(1, 4), draw(1, 9), draw(0, 4)};
  }
  return batches;
}

std::string ladder_error(const LadderProblem& problem) {
  return test::error_of([&] { (void)optimal_length_ladder(problem); });
}

}  // namespace

TEST_CASE(
    "the ladder is the best of all ladders, in 1,000 cases of both keys, with and without K") {
  std::mt19937 random(20261123);
  int limited = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::vector<LadderBatch> batches = random_batches(random);
    const std::vector<std::int64_t> lengths = distinct_lengths(batches);
    LadderProblem problem = problem_of(batches, static_cast<double>(random() % 40));
    for (const ShapeKey key : {ShapeKey::SamplesAndLength, ShapeKey::Length}) {
      problem.key = key;
      problem.most_rungs.reset();
      const LengthLadder free = optimal_length_ladder(problem);
      CHECK(total(free) == least_total(problem, lengths));
      problem.most_rungs = 1 + static_cast<std::int64_t>(random() % 4);
      const LengthLadder ladder = optimal_length_ladder(problem);
      CHECK(std::ssize(ladder.rungs) <= *problem.most_rungs);
      CHECK(total(ladder) == least_total(problem, lengths));
      limited += total(ladder) > total(free) ? 1 : 0;
      const LengthLadder figures = figures_of(problem, ladder.rungs);
      CHECK(ladder.compute_seconds == figures.compute_seconds);
      CHECK(ladder.shape_seconds == figures.shape_seconds);
      CHECK(ladder.shapes == figures.shapes);
    }
  }
  CHECK(limited > 100);  // K mattered.
}

TEST_CASE("shapes that cost nothing leave every length, dear ones a single rung") {
  std::vector<LadderBatch> batches = {{8, 30, 2}, {8, 12, 5}, {8, 57, 1}, {8, 12, 1}};
  const LengthLadder exact = optimal_length_ladder(problem_of(batches, 0));
  CHECK(exact.rungs == std::vector<std::int64_t>{12, 30, 57});
  CHECK(exact.shapes == 3);
  CHECK(exact.shape_seconds == 0);
  const LengthLadder one = optimal_length_ladder(problem_of(batches, 1e9));
  CHECK(one.rungs == std::vector<std::int64_t>{57});
  CHECK(one.shapes == 1);
  CHECK(one.shape_seconds == 1e9);
  batches.push_back({4, 57, 1});  // Another number of samples is another shape on any rung.
  CHECK(optimal_length_ladder(problem_of(batches, 1e9)).shapes == 2);
}

TEST_CASE("a key of lengths alone does not pay for numbers of samples") {
  // Padding 10 to 20 takes 10 s more in each of 3 batches, and saves one length or three shapes.
  const std::vector<LadderBatch> batches = {{1, 10}, {2, 10}, {3, 10}, {1, 20}, {2, 20}, {3, 20}};
  LadderProblem problem = problem_of(batches, 20);
  problem.price = [](std::int64_t, std::int64_t length) { return static_cast<double>(length); };
  CHECK(optimal_length_ladder(problem).rungs == std::vector<std::int64_t>{20});
  problem.key = ShapeKey::Length;
  CHECK(optimal_length_ladder(problem).rungs == std::vector<std::int64_t>{10, 20});
}

TEST_CASE("rungs are multiples of the step, the last one at most the longest allowed") {
  const std::vector<LadderBatch> batches = {{1, 3}, {1, 9}, {1, 14}, {1, 16}, {1, 21}};
  LadderProblem problem = problem_of(batches, 0);
  problem.step = 8;
  CHECK(optimal_length_ladder(problem).rungs == std::vector<std::int64_t>{8, 16, 24});
  problem.longest_allowed = 22;
  CHECK(optimal_length_ladder(problem).rungs == std::vector<std::int64_t>{8, 16, 22});
}

TEST_CASE("a ladder of bad input says what is wrong") {
  const std::vector<LadderBatch> batches = {{8, 30, 2}};
  CHECK(ladder_error(problem_of({}, 1)) == "no batches to make a ladder of lengths for");
  CHECK(ladder_error(problem_of(batches, -1)) == "a new shape cannot cost -1 s");
  CHECK(ladder_error(problem_of(batches, std::numeric_limits<double>::quiet_NaN())) ==
        "a new shape cannot cost nan s");
  CHECK(ladder_error(problem_of({{8, 0, 2}}, 1)) ==
        "2 batches of 8 samples of 0 tokens: expected samples and tokens");
  LadderProblem problem = problem_of(batches, 1);
  problem.most_rungs = 0;
  CHECK(ladder_error(problem) == "a ladder of 0 lengths holds no batch; expected 1 or more");
  problem.most_rungs = 1;
  problem.step = 0;
  CHECK(ladder_error(problem) == "lengths cannot be multiples of 0; expected 1 or more");
  problem.step = 8;
  problem.longest_allowed = 29;
  CHECK(ladder_error(problem) == "a batch is 30 tokens long, the longest length allowed is 29");
}

TEST_CASE("too many shapes, lengths or rungs are refused before memory is taken") {
  const std::vector<LadderBatch> many(kMostLadderBatches + 1, LadderBatch{1, 1, 1});
  CHECK(ladder_error(problem_of(many, 1)) ==
        "10000001 distinct shapes are too many for a ladder of lengths, which takes 10000000");
  std::vector<LadderBatch> long_tail;
  for (std::int64_t length = 1; length <= std::ssize(many) && length <= 20'001; ++length) {
    long_tail.push_back({1, length, 1});
  }
  CHECK(ladder_error(problem_of(long_tail, 1)).find("20001 distinct lengths are too many") == 0);
  long_tail.pop_back();
  LadderProblem problem = problem_of(long_tail, 0);
  problem.most_rungs = 1001;
  CHECK(ladder_error(problem) ==
        "20000 lengths for at most 1001 rungs are too many; restrict the ladder to multiples of a "
        "larger step");
}

TEST_CASE("three thousand lengths and thirty thousand shapes take seconds at most") {
  std::mt19937 random(7);
  std::vector<LadderBatch> batches;
  for (std::int64_t length = 1; length <= 3000; ++length) {
    for (int i = 0; i < 10; ++i) {
      batches.push_back({1 + static_cast<std::int64_t>(random() % 256), length, 1});
    }
  }
  LadderProblem problem = problem_of(batches, 5000);
  problem.most_rungs = 32;
  const auto start = std::chrono::steady_clock::now();
  const LengthLadder ladder = optimal_length_ladder(problem);
  const auto taken = std::chrono::steady_clock::now() - start;
  MESSAGE("seconds: " << std::chrono::duration<double>(taken).count());
  CHECK(ladder.rungs.size() <= 32);
  CHECK(taken < std::chrono::seconds(30));  // About one on a quiet machine, optimised.
}
