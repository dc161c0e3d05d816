// What fits of GEMMs learn of tiles and waves that no grid shows directly.
#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/fit/form_fits.h"
#include "calibrate/fit/gemm_ratio_fit.h"
#include "calibrate/fit/holdout.h"
#include "costmodel/compute/op_cost.h"
#include "tests/approx.h"
#include "tests/calibrate/measure/fake_backend.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

constexpr double kRowsOfTile = 128;

SeriesPoint gemm_tokens(std::int64_t tokens, double seconds) {
  const auto length = static_cast<double>(tokens);
  return {{1, tokens, tokens, length * length}, seconds};
}

Op square_gemm() {
  Op op;
  op.op_class = OpClass::Gemm;
  op.n = op.k = 4096;
  return op;
}

/// The time depends on the row tiles only, each of which adds 1 to 2 us, or 2 to 3.
std::vector<double> staircase() {
  test::Noise random(3);
  std::vector<double> seconds = {20e-6};
  for (int tile = 1; tile <= 16; ++tile) {
    seconds.push_back(seconds.back() + 1e-6 * (tile % 2 + 1.5 + 0.5 * random.next()));
  }
  return seconds;
}

/// Mean |error| inside the tiles of a fit to every `step`-th size.
double error_inside(std::int64_t step, std::int64_t processors) {
  const std::vector<double> tiles = staircase();
  const auto seconds = [&](std::int64_t tokens) {
    return tiles[static_cast<std::size_t>(std::ceil(static_cast<double>(tokens) / kRowsOfTile))];
  };
  const Op op = square_gemm();
  Series series{op, {gemm_tokens(64, seconds(64))}};
  for (std::int64_t tokens = step; tokens <= 2048; tokens += step) {
    series.points.push_back(gemm_tokens(tokens, seconds(tokens)));
  }
  const FormCandidate candidate{CostForm::FeaturesRatio, {"1", "tokens"}, false, 64, processors};
  const OpCost cost = fit_form(candidate, op, series.points);
  ErrorSum sum;
  for (std::int64_t tokens = 200; tokens < 2048; tokens += 8) {
    sum.add(evaluate(cost, op, gemm_tokens(tokens, 1).batch).seconds, seconds(tokens));
  }
  for (const SeriesPoint& point : series.points) {
    CAPTURE(point.batch.max_length);
    CHECK(evaluate(cost, op, point.batch).seconds == Approx(point.seconds).epsilon(0.02));
  }
  return *sum.mean();
}

/// Products of 20 sizes, in whole waves of tiles of 128 x 128.
std::vector<GemmPoint> waves_on(std::int64_t processors) {
  std::vector<GemmPoint> points;
  const auto count = static_cast<double>(processors);
  for (int n = 4; n <= 8; ++n) {
    for (int k = 1; k <= 4; ++k) {
      for (double m = 64; m <= 4096; m += 64) {
        GemmPoint point{m, 896.0 * n, 1024.0 * k, 0};
        const double tiles = std::ceil(m / kRowsOfTile) * std::ceil(point.n / kRowsOfTile);
        point.seconds = std::ceil(tiles / count) * count * point.k * 1e-10;
        points.push_back(point);
      }
    }
  }
  return points;
}

}  // namespace

TEST_CASE("whole tiles alone say that a time steps between them; sizes inside say where") {
  const double line = error_inside(256, 108);  // Every second tile is a guess.
  const double aligned = error_inside(128, 108);
  const double inside = error_inside(64, 108);
  CAPTURE(line);
  CAPTURE(aligned);
  CAPTURE(inside);
  CHECK(aligned < 0.6 * line);
  CHECK(inside < aligned);
}

TEST_CASE("numbers of processors are those that predict sizes left out, and differ") {
  const std::vector<GemmPoint> points = waves_on(84);
  std::vector<double> first;
  for (const GemmPoint& point : points) {
    first.push_back(point.m * point.n * point.k * 1e-14);
  }
  const std::vector<std::int64_t> counts = wave_counts(points, first);
  REQUIRE(counts.size() == 3);
  CHECK(counts[0] % 84 == 0);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double factor = static_cast<double>(counts[i]) / static_cast<double>(counts[j]);
      CHECK(std::max(factor, 1 / factor) >= 1.1);
    }
  }
}

TEST_CASE("the weights of several numbers of processors are those of each by itself") {
  const std::vector<GemmPoint> points = waves_on(84);
  const std::vector<double> first(points.size(), 1e-5);
  const std::vector<std::int64_t> both = {84, 132};
  const GemmRatio mean = fit_gemm_ratio(points, first, both);
  CHECK(mean.weights.size() == 2 * gemm_ratio_width());
  double product = 1;
  for (const std::int64_t& count : both) {
    product *= gemm_ratio(fit_gemm_ratio(points, first, std::span(&count, 1)), 1000, 4000, 2000);
  }
  CHECK(gemm_ratio(mean, 1000, 4000, 2000) == Approx(std::sqrt(product)));
}

}  // namespace stepsim
