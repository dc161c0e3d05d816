#include "sim/batching/training_effects.h"

#include <vector>

#include <doctest/doctest.h>

#include "tests/approx.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

const std::vector<std::int64_t> kLengths = {4, 8, 4, 8, 2, 6};

PolicyInput input() {
  PolicyInput result;
  result.lengths = kLengths;
  result.ranks = 2;
  result.sampler.shuffle = false;
  return result;
}

TrainingEffects effects_of(const EpochBatches& batches) {
  return training_effects({batches, {}}, input());
}

}  // namespace

TEST_CASE("training effects: the sampler's own order changes nothing") {
  const TrainingEffects effects = effects_of({{{0}, {2}, {4}}, {{1}, {3}, {5}}});
  CHECK(effects.samples == 6);
  CHECK(effects.lost_samples == 0);
  CHECK(effects.repeated_samples == 0);
  CHECK(effects.fewest_steps == 3);
  CHECK(effects.most_steps == 3);
  CHECK(effects.sample_skew == 1);
  // Tokens: 8 of 12, 8 of 12, 6 of 8.
  CHECK(effects.token_skew == Approx(2 * (8.0 / 12 + 8.0 / 12 + 6.0 / 8) / 3));
  // Each step holds two neighbours; each is half a sample from the step's middle.
  CHECK(effects.displacement == Approx(0.5 / 6));
  CHECK(effects.distinct_shapes == 4);  // Lengths 4, 2, 8, 6.
}

TEST_CASE("training effects: lost, repeated and unequal") {
  const TrainingEffects effects = effects_of({{{0, 1, 2}, {0}}, {{3}}});
  CHECK(effects.lost_samples == 2);
  CHECK(effects.lost_tokens == 8);
  CHECK(effects.repeated_samples == 1);
  CHECK(effects.repeated_tokens == 4);
  CHECK(effects.cropped_tokens == 0);
  CHECK(effects.split_samples == 0);
  CHECK(effects.fewest_steps == 1);
  CHECK(effects.most_steps == 2);
  CHECK(effects.sample_skew == Approx(2 * 3.0 / 4));
}

TEST_CASE("training effects: the reverse order is half an epoch away on average") {
  std::vector<std::int64_t> lengths(100, 3);
  PolicyInput many;
  many.lengths = lengths;
  many.ranks = 1;
  many.sampler.shuffle = false;
  Batches batches;
  for (std::int64_t sample = 99; sample >= 0; --sample) {
    batches.push_back({sample});
  }
  CHECK(training_effects({{batches}, {}}, many).displacement == Approx(0.5).epsilon(0.01));
}

TEST_CASE("training effects: parts of samples") {
  // Lengths 4, 8, 4, 8, 2, 6.
  const std::vector<Piece> pieces = {{0, 0, 4},   // Whole.
                                     {1, 0, 3},   // In two parts that leave 2 tokens out,
                                     {1, 5, 3},   // the middle ones.
                                     {2, 1, 3},   // Without its first token.
                                     {3, 0, 5},   // Parts that share 2 tokens
                                     {3, 3, 5},   // and hold all of it,
                                     {3, 4, 2}};  // with a third that brings nothing.
  const TrainingEffects effects =
      training_effects({{{{0, 1}, {4, 6}}, {{2, 3}, {5}}}, pieces}, input());
  CHECK(effects.tokens == 32);
  CHECK(effects.lost_samples == 2);
  CHECK(effects.lost_tokens == 8);
  CHECK(effects.cropped_samples == 2);
  CHECK(effects.cropped_tokens == 3);
  CHECK(effects.split_samples == 2);
  CHECK(effects.repeated_samples == 1);
  CHECK(effects.repeated_tokens == 2 + 2);
  // Tokens of the steps: 7 of 13, 7 of 12.
  CHECK(effects.token_skew == Approx((2 * 7.0 / 13 + 2 * 7.0 / 12) / 2));
  CHECK(effects.sample_skew == Approx((1 + 2 * 2.0 / 3) / 2));
  CHECK(effects.distinct_shapes == 4);  // (2, 4), (2, 5), (2, 3), (1, 5).
}

TEST_CASE("training effects: no batch at all") {
  const TrainingEffects effects = effects_of({{}, {}});
  CHECK(effects.lost_samples == 6);
  CHECK(effects.fewest_steps == 0);
  CHECK(effects.sample_skew == 1);
  CHECK(effects.displacement == 0);
}
