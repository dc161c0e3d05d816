#include "calibrate/fit/pass_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::Approx;
using stepsim::test::RandomValues;

namespace {

using Law = std::function<double(const BatchShape&)>;

/// 4 to 16 samples of 20 to 240 tokens.
BatchShape random_batch(RandomValues& draw) {
  std::vector<std::int64_t> lengths;
  const int longest = 60 + draw.whole(180);
  for (int i = 4 + draw.whole(12); i > 0; --i) {
    lengths.push_back(20 + draw.whole(longest - 20));
  }
  return batch_shape(lengths);
}

/// Two ranks' passes by a law, times 1 +- noise.
std::vector<PassObservation> observed(const Law& law, int steps, double noise = 0) {
  RandomValues draw(7);
  std::mt19937_64 generator(3);
  std::vector<PassObservation> result;
  for (int i = 0; i < 2 * steps; ++i) {
    PassObservation observation;
    observation.batches = {random_batch(draw)};
    const double uniform = static_cast<double>(generator() >> 11) * 0x1p-53;
    observation.seconds = law(observation.batches[0]) * (1 + noise * (2 * uniform - 1));
    observation.step = i / 2;
    result.push_back(observation);
  }
  return result;
}

PassCost fitted_pass(const std::vector<PassObservation>& observations,
                     AttentionKind attention = AttentionKind::Dense) {
  return fit_pass(observations, pass_features(observations, attention, Memory::OfGpu), attention);
}

/// Largest relative error on batches that were not fitted_pass.
double worst_unseen(const PassCost& cost, const Law& law, bool varlen) {
  RandomValues draw(1000);
  double worst = 0;
  for (int i = 0; i < 200; ++i) {
    const BatchShape batch = random_batch(draw);
    const double seconds = pass_seconds(cost, cost.coefficients, batch, varlen);
    worst = std::max(worst, std::abs(seconds / law(batch) - 1));
  }
  return worst;
}

double planted_pass(const BatchShape& batch) {
  return 4e-4 + 3e-5 * static_cast<double>(batch.samples) +
         2e-6 * static_cast<double>(batch.padded_tokens()) +
         1e-8 * static_cast<double>(batch.padded_tokens() * batch.max_length);
}

double constant_law(const BatchShape& batch) {
  return 3e-3 + 1e-6 * static_cast<double>(batch.padded_tokens());
}

double varlen_law(const BatchShape& batch) {
  return 4e-4 + 2e-6 * static_cast<double>(batch.useful_tokens) + 1e-8 * batch.sum_squares;
}

}  // namespace

TEST_CASE("a planted_pass cost predicts batches that were not fitted_pass to rounding") {
  for (const Law& law : {Law(planted_pass), Law(constant_law)}) {
    const PassCost cost = fitted_pass(observed(law, 60));
    CHECK(worst_unseen(cost, law, false) < 1e-9);
    CHECK(*cost.errors.random < 1e-9);
    CHECK(*cost.errors.block < 0.02);  // Other sizes may not show where the held-out ones bend.
    CHECK(cost.samples == 120);
  }
}

TEST_CASE("a record of thousands of steps is fitted, and drawn in longer blocks") {
  constexpr double kNoise = 0.1;
  const PassCost cost = fitted_pass(observed(planted_pass, 9000, kNoise));
  CHECK(cost.samples == 18'000);
  CHECK(worst_unseen(cost, planted_pass, false) < 0.02);
  CHECK(*cost.errors.random == Approx(kNoise / 2).epsilon(0.05));  // The mean of a uniform.
  // Draws are of fits to as many steps, whose means scatter by less than single ones.
  RandomValues draw(2000);
  const BatchShape batch = random_batch(draw);
  for (const std::vector<double>& coefficients : cost.draws) {
    const double seconds = pass_seconds(cost, coefficients, batch, false);
    CHECK(seconds == Approx(planted_pass(batch)).epsilon(0.02));
  }
}

TEST_CASE("thousands of steps of the same batches are fitted by their sums") {
  constexpr double kNoise = 0.1;
  for (const double noise : {0.0, kNoise}) {
    std::vector<PassObservation> all = observed(planted_pass, 40, noise);
    std::mt19937_64 generator(5);
    for (std::size_t i = 80; i < 8000; ++i) {  // The same 80 batches, again and again.
      PassObservation again = all[i - 80];
      const double uniform = static_cast<double>(generator() >> 11) * 0x1p-53;
      again.seconds = planted_pass(again.batches[0]) * (1 + noise * (2 * uniform - 1));
      again.step = static_cast<int>(i / 2);
      all.push_back(again);
    }
    const PassCost cost = fitted_pass(all);
    CHECK(cost.samples == 8000);
    CHECK(worst_unseen(cost, planted_pass, false) < (noise > 0 ? 0.02 : 1e-6));
    // The mean of a uniform.
    CHECK(std::abs(*cost.errors.random - noise / 2) < 0.05 * noise / 2 + 1e-9);
  }
}

TEST_CASE("with varlen attention padding is no part of the cost") {
  const PassCost cost = fitted_pass(observed(varlen_law, 60), AttentionKind::Varlen);
  CHECK(worst_unseen(cost, varlen_law, true) < 1e-9);
  CHECK(cost.features == std::vector<std::string>{"1", "samples", "tokens", "tokens*length"});
}

TEST_CASE("scores that a cache does not hold bend the cost at one of the deciles") {
  const auto points = observed(planted_pass, 60);
  const auto features = pass_features(points, AttentionKind::Dense, Memory::OfGpu);
  REQUIRE(features.size() == 9);
  const std::string bend = features[6];  // The median.
  const Law bent = [&](const BatchShape& batch) {
    return planted_pass(batch) + 2e-8 * pass_feature(bend, batch, false);
  };
  const PassCost cost = fitted_pass(observed(bent, 60));
  CHECK(worst_unseen(cost, bent, false) < 1e-9);
  CHECK(worst_unseen(cost, planted_pass, false) > 0.05);
}

TEST_CASE("noise of 5 % leaves predictions within 3 % and is seen by the errors") {
  const auto points = observed(planted_pass, 60, 0.05);
  const PassCost cost = fitted_pass(points);
  CHECK(worst_unseen(cost, planted_pass, false) < 0.03);
  // Uniform within 5 %: 2.5 % in the mean.
  CHECK(*cost.errors.random > 0.02);
  CHECK(*cost.errors.random < 0.035);
  CHECK(*cost.errors.block < 0.02);
  double ratio = 0;
  for (const PassObservation& point : points) {
    ratio += point.seconds / pass_seconds(cost, cost.coefficients, point.batches[0], false) / 120;
  }
  CHECK(ratio == Approx(1).epsilon(0.005));
}

TEST_CASE("the draws are other fits around the cost") {
  const PassCost cost = fitted_pass(observed(planted_pass, 60, 0.05));
  REQUIRE(cost.draws.size() == 40);
  const std::vector<BatchShape> batch = {{8, 128, 900, 0}};
  double mean = 0;
  double low = 2;
  double high = 0;
  for (const double ratio : draw_ratios(cost, batch, false)) {
    mean += ratio / 40;
    low = std::min(low, ratio);
    high = std::max(high, ratio);
  }
  CHECK(mean == Approx(1));
  CHECK(low < 0.998);
  CHECK(high > 1.002);
  CHECK(high - low < 0.05);
}

TEST_CASE("the ranges are those of single micro-batches, and a step is the sum of its own") {
  std::vector<PassObservation> points = observed(planted_pass, 60);
  RandomValues draw(20);
  for (PassObservation& point : points) {
    point.batches.push_back(random_batch(draw));
    point.seconds += planted_pass(point.batches[1]);
  }
  points[5].batches[0] = batch_shape(std::vector<std::int64_t>(2, 10));
  points[5].seconds = planted_pass(points[5].batches[0]) + planted_pass(points[5].batches[1]);
  const PassCost cost = fitted_pass(points);
  CHECK(worst_unseen(cost, planted_pass, false) < 1e-9);
  CHECK(cost.tokens.first == 20);
  CHECK(cost.length.first == 10);
  CHECK(cost.tokens.second <= 16 * 240);
  CHECK(cost.length.second <= 240);
}

TEST_CASE("a fit is right in the mean of the observations, not short by their spread") {
  // Single times scatter by 40 %: least relative residuals alone would be short by 16 %.
  const auto points = observed(planted_pass, 200, 0.69);
  const PassCost cost = fitted_pass(points);
  double ratio = 0;
  for (const PassObservation& point : points) {
    ratio += point.seconds / pass_seconds(cost, cost.coefficients, point.batches[0], false) / 400;
  }
  CHECK(ratio == Approx(1).epsilon(0.01));
}

namespace {

/// What `planted_pass` takes beside its constant.
double planted_weight(const BatchShape& batch) {
  return planted_pass(batch) - 4e-4;
}

/// Steps of batches that all have about the same size, with noise.
std::vector<PassObservation> narrow(int steps) {
  std::mt19937_64 generator(5);
  std::vector<PassObservation> result;
  for (int i = 0; i < steps; ++i) {
    PassObservation observation;
    const auto length = static_cast<std::int64_t>(118 + generator() % 11);
    observation.batches = {batch_shape(std::vector<std::int64_t>(8, length))};
    const double uniform = static_cast<double>(generator() >> 11) * 0x1p-53;
    observation.seconds = planted_pass(observation.batches[0]) * (0.9 + 0.2 * uniform);
    observation.step = i;
    result.push_back(observation);
  }
  return result;
}

double error_at(const PassCost& cost, std::int64_t samples, std::int64_t length) {
  const BatchShape batch = batch_shape(std::vector<std::int64_t>(samples, length));
  return pass_seconds(cost, cost.coefficients, batch, false) / planted_pass(batch) - 1;
}

}  // namespace

TEST_CASE("where the recorded batches do not tell, a pass costs by its weight") {
  const auto points = narrow(12);
  const auto features = pass_features(points, AttentionKind::Dense, Memory::OfGpu);
  const PassCost alone = fit_pass(points, features, AttentionKind::Dense);
  const PassCost known = fit_pass(points, features, AttentionKind::Dense, planted_weight);
  CHECK(std::abs(error_at(known, 8, 123)) < 0.05);
  CHECK(std::abs(error_at(known, 8, 40)) < 0.25);
  CHECK(std::abs(error_at(known, 24, 123)) < 0.25);
  const auto worst = [](const PassCost& cost) {
    return std::max({std::abs(error_at(cost, 8, 40)),
                     std::abs(error_at(cost, 24, 123)),
                     std::abs(error_at(cost, 8, 400))});
  };
  MESSAGE("worst error " << worst(known) << ", without the weight " << worst(alone));
  CHECK(worst(known) < 0.25);
  CHECK(worst(alone) > 1.5 * worst(known));
  // The draws know that this is a guess: they spread more than at the recorded size.
  const auto spread = [&](std::int64_t length) {
    const std::vector<BatchShape> batch = {batch_shape(std::vector<std::int64_t>(8, length))};
    const auto ratios = draw_ratios(known, batch, false);
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    return *high - *low;
  };
  CHECK(spread(40) > 2 * spread(123));
}

namespace {

/// The shapes of batches, samples and length, each recorded so often and taking so many seconds.
struct RecordedShape {
  std::int64_t samples;
  std::int64_t length;
  double seconds;
};

PassCost fit_to_shapes(const std::vector<RecordedShape>& shapes) {
  constexpr int kRepeats = 10;
  std::vector<PassObservation> points;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (const RecordedShape& shape : shapes) {
      PassObservation point;
      point.batches = {batch_shape(
          std::vector<std::int64_t>(static_cast<std::size_t>(shape.samples), shape.length))};
      point.seconds = shape.seconds * (1 + 0.01 * (repeat % 3 - 1));
      point.step = static_cast<int>(points.size());
      points.push_back(point);
    }
  }
  return fit_pass(points,
                  pass_features(points, AttentionKind::Dense, Memory::OfGpu),
                  AttentionKind::Dense,
                  planted_weight);
}

/// The 5 and 95 % quantiles of the draws for a batch, in seconds.
std::pair<double, double> interval_at(const PassCost& cost,
                                      std::int64_t samples,
                                      std::int64_t length) {
  const BatchShape batch =
      batch_shape(std::vector<std::int64_t>(static_cast<std::size_t>(samples), length));
  std::vector<double> seconds =
      mapped(cost.draws, [&](const auto& draw) { return pass_seconds(cost, draw, batch, false); });
  return {quantile(seconds, 0.05), quantile(seconds, 0.95)};
}

double width_at(const PassCost& cost, std::int64_t samples, std::int64_t length) {
  const auto [low, high] = interval_at(cost, samples, length);
  return high / low;
}

}  // namespace

TEST_CASE("fewer shapes than terms: the draws hold a constant and a slope") {
  // The two recorded cases of the token-skew lab. 16.32 ms are 13.3 us a token and 20.6 ns for
  // tokens * length, or 9.08 ms in any batch, or a ninth of that for each sample, and 55.3 ns.
  const PassCost two = fit_to_shapes({{8, 128, 16.32e-3}, {8, 256, 38.05e-3}});
  const auto [short_low, short_high] = interval_at(two, 8, 64);
  CHECK(short_low < 7.8e-3);    // All slope: 7.5 ms.
  CHECK(short_high > 10.3e-3);  // All constant: 10.9 ms.
  const auto [many_low, many_high] = interval_at(two, 19, 66);
  CHECK(many_low < 15.5e-3);  // A constant: 13.7 ms.
  CHECK(many_high > 23e-3);   // A time for each sample: 26.1 ms.
  // What was recorded stays as sure as it is.
  CHECK(width_at(two, 8, 128) < 1.04);
  CHECK(width_at(two, 8, 256) < 1.04);
}

TEST_CASE("fewer shapes than terms: one shape, shapes alike, one length; four shapes tell") {
  // One shape: half of it may take much more than half as much, as far as what is known by weight
  // allows; shapes within a tenth are one.
  for (const PassCost& one :
       {fit_to_shapes({{8, 128, 0.016}}),
        fit_to_shapes({{8, 128, 0.016}, {8, 131, 0.0164}, {8, 125, 0.0156}})}) {
    const auto [low, high] = interval_at(one, 4, 128);
    CHECK(low < 0.0085);
    CHECK(high > 0.0104);  // 0.0089 by weight alone.
    CHECK(width_at(one, 8, 128) < 1.04);
  }
  // Batches of one length: twice the length is twice to four times the time.
  const PassCost length = fit_to_shapes({{4, 128, 0.008}, {8, 128, 0.016}});
  const auto [low, high] = interval_at(length, 8, 256);
  CHECK(low < 0.024);
  CHECK(high > 0.055);
  // Four shapes of a law tell its terms.
  std::vector<RecordedShape> four = {{4, 64, 0}, {8, 128, 0}, {16, 80, 0}, {4, 250, 0}};
  for (RecordedShape& shape : four) {
    shape.seconds = planted_pass(batch_shape(
        std::vector<std::int64_t>(static_cast<std::size_t>(shape.samples), shape.length)));
  }
  CHECK(width_at(fit_to_shapes(four), 8, 100) < 1.05);
}

TEST_CASE("new memory that the largest batches find is learnt, and expected beyond them") {
  // From 0.7 times the most tokens on, up to a quarter more.
  const auto plain = observed(planted_pass, 200);
  double most = 0;
  for (const PassObservation& point : plain) {
    most = std::max(most, static_cast<double>(point.batches[0].padded_tokens()));
  }
  const Law faults = [most](const BatchShape& batch) {
    const double beyond = static_cast<double>(batch.padded_tokens()) / most - 0.7;
    return planted_pass(batch) * (1 + std::max(0.0, beyond) / 0.3 * 0.25);
  };
  const auto fitted = [&](const std::vector<PassObservation>& points, Memory memory) {
    const auto features = pass_features(points, AttentionKind::Dense, memory);
    return fit_pass(points, features, AttentionKind::Dense, planted_weight);
  };
  const auto error = [](const PassCost& cost, const BatchShape& batch, const Law& law) {
    return pass_seconds(cost, cost.coefficients, batch, false) / law(batch) - 1;
  };
  const auto points = observed(faults, 200, 0.02);
  const BatchShape largest = *std::ranges::max_element(
      points.front().batches, {}, [](const BatchShape& batch) { return batch.padded_tokens(); });
  const BatchShape small = batch_shape(std::vector<std::int64_t>(5, 80));
  for (const BatchShape& batch : {largest, small}) {
    CHECK(std::abs(error(fitted(points, Memory::OfProcessor), batch, faults)) < 0.05);
  }
  // A record of alike batches says nothing; larger ones are expected to find new memory.
  const auto alike = narrow(12);
  const BatchShape larger = batch_shape(std::vector<std::int64_t>(12, 123));
  const double on_processor = error(fitted(alike, Memory::OfProcessor), larger, planted_pass);
  const double on_gpu = error(fitted(alike, Memory::OfGpu), larger, planted_pass);
  CHECK(on_processor > on_gpu + 0.02);
  CHECK(pass_features(alike, AttentionKind::Dense, Memory::OfGpu).size() + 2 ==
        pass_features(alike, AttentionKind::Dense, Memory::OfProcessor).size());
}

TEST_CASE("what is known by weight does not move a fit that many steps decide") {
  const auto points = observed(planted_pass, 200, 0.05);
  const auto features = pass_features(points, AttentionKind::Dense, Memory::OfGpu);
  const auto wrong = [](const BatchShape& batch) { return static_cast<double>(batch.samples); };
  const PassCost alone = fit_pass(points, features, AttentionKind::Dense);
  const PassCost misled = fit_pass(points, features, AttentionKind::Dense, wrong);
  for (const auto& [samples, length] : {std::pair(5, 60), std::pair(10, 120), std::pair(14, 220)}) {
    CHECK(error_at(misled, samples, length) ==
          Approx(error_at(alone, samples, length)).epsilon(0.03).scale(1));
  }
}

TEST_CASE("the same observations give the same bits") {
  CHECK(fitted_pass(observed(planted_pass, 40, 0.05)) ==
        fitted_pass(observed(planted_pass, 40, 0.05)));
}

TEST_CASE("too few observations and empty times are refused") {
  auto points = observed(planted_pass, 5);
  CHECK_NOTHROW((void)fitted_pass(points));
  points.pop_back();
  CHECK(test::error_of([&] { (void)fitted_pass(points); }) ==
        "9 steps and ranks are too few for a fit; record at least 10");
  CHECK(test::error_of([&] { (void)fitted_pass({}); }) ==
        "0 steps and ranks are too few for a fit; record at least 10");
  points = observed(planted_pass, 5);
  points[7].seconds = 0;
  CHECK(test::error_of([&] { (void)fitted_pass(points); }) == "step 3: a time of 0");
}

TEST_CASE("batches that attention slows lose less than a fifth to what their weight says") {
  // The weight knows nothing of attention: four times the length takes more than ten times as long.
  // Two in five of the longest batches take 1.4 times as long as the others.
  const Law law = [](const BatchShape& batch) {
    const auto tokens = static_cast<double>(batch.padded_tokens());
    return 2e-3 + 1e-7 * tokens + 2e-7 * tokens * static_cast<double>(batch.max_length);
  };
  std::vector<PassObservation> observations;
  double longest_seconds = 0;
  for (int i = 0; i < 100; ++i) {
    const bool longest = i % 10 == 9;
    const std::int64_t length = longest ? 512 : 32 + (i * 37) % 180;
    PassObservation observation;
    observation.batches = {batch_shape(std::vector<std::int64_t>(16, length))};
    observation.seconds = law(observation.batches[0]) * (i % 2 == 0 ? 0.7 : 1.3);
    if (longest) {
      observation.seconds = law(observation.batches[0]) * (i % 50 < 20 ? 1.4 : 1.0);
      longest_seconds += observation.seconds / 10;
    }
    observation.step = i;
    observations.push_back(observation);
  }
  const auto features = pass_features(observations, AttentionKind::Dense, Memory::OfProcessor);
  const PassCost cost =
      fit_pass(observations, features, AttentionKind::Dense, [](const BatchShape& batch) {
        return static_cast<double>(batch.padded_tokens());
      });
  const BatchShape longest = batch_shape(std::vector<std::int64_t>(16, 512));
  const double ratio = pass_seconds(cost, cost.coefficients, longest, false) / longest_seconds;
  CHECK(ratio > 0.8);  // 0.75 where longer batches are as sure as others.
  CHECK(ratio < 1);
}
