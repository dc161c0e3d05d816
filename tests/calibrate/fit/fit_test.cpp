#include "calibrate/fit/fit.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Dense>
#include <doctest/doctest.h>

#include "calibrate/fit/find_processors.h"
#include "calibrate/fit/form_fits.h"
#include "calibrate/fit/gemm_ratio_fit.h"
#include "calibrate/fit/holdout.h"
#include "calibrate/fit/knot_fit.h"
#include "calibrate/fit/nnls.h"
#include "calibrate/fit/unmeasured_sizes.h"
#include "costmodel/compute/cost_features.h"
#include "costmodel/compute/op_cost.h"
#include "tests/approx.h"
#include "tests/calibrate/measure/fake_backend.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

double uniform(std::uint64_t* state) {
  return static_cast<double>(next_random(state) >> 11U) * 0x1p-53;
}

double residual(const std::vector<std::vector<double>>& rows,
                const std::vector<double>& y,
                const std::vector<double>& c) {
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    sum += std::pow(dot(c, rows[i]) / y[i] - 1, 2);
  }
  return sum;
}

/// The best of the least squares over every set of columns whose solution is not negative.
double best_by_brute_force(const std::vector<std::vector<double>>& rows,
                           const std::vector<double>& y) {
  const std::size_t width = rows.front().size();
  double best = residual(rows, y, std::vector<double>(width, 0.0));
  for (unsigned set = 1; set < (1U << width); ++set) {
    std::vector<std::size_t> columns;
    for (std::size_t j = 0; j < width; ++j) {
      if ((set >> j & 1U) != 0) {
        columns.push_back(j);
      }
    }
    Eigen::MatrixXd a(static_cast<Eigen::Index>(rows.size()),
                      static_cast<Eigen::Index>(columns.size()));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t j = 0; j < columns.size(); ++j) {
        a(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) = rows[i][columns[j]] / y[i];
      }
    }
    const Eigen::VectorXd x = a.colPivHouseholderQr().solve(Eigen::VectorXd::Ones(a.rows()));
    if (x.minCoeff() < 0) {
      continue;
    }
    std::vector<double> c(width, 0.0);
    for (std::size_t j = 0; j < columns.size(); ++j) {
      c[columns[j]] = x(static_cast<Eigen::Index>(j));
    }
    best = std::min(best, residual(rows, y, c));
  }
  return best;
}

Op gemm(std::int64_t n, std::int64_t k) {
  Op op;
  op.op_class = OpClass::Gemm;
  op.n = n;
  op.k = k;
  return op;
}

Op attention_scores() {
  Op op;
  op.op_class = OpClass::AttentionScores;
  op.heads = op.kv_heads = 4;
  op.head_dim = 12;
  return op;
}

BatchShape padded(std::int64_t samples, std::int64_t length) {
  const auto l = static_cast<double>(length);
  return {samples, length, samples * length, static_cast<double>(samples) * l * l};
}

/// Narrow outputs are computed in small tiles, as libraries do.
std::string planted_waves(const Op& op) {
  return op.n < 4096 ? "waves:64x64" : "waves:256x128";
}

/// 10 us, 5 ns a token and, for each wave, 10 ns for each step along k.
double wave_seconds(const Op& op, std::int64_t tokens, std::int64_t processors) {
  const double waves = feature_value(planted_waves(op), op, padded(1, tokens), processors);
  return 10e-6 + 5e-9 * static_cast<double>(tokens) + waves * static_cast<double>(op.k) * 10e-9;
}

Series wave_series(const Op& op, std::int64_t processors, double noise, std::uint64_t seed) {
  test::Noise random(seed);
  Series series{op, {}};
  for (std::int64_t tokens = 16; tokens <= 2048; tokens += 16) {
    series.points.push_back(
        {padded(1, tokens), wave_seconds(op, tokens, processors) * (1 + noise * random.next())});
  }
  return series;
}

std::vector<OpSample> planted_samples(const Op& op, double noise, std::uint64_t seed) {
  test::Noise random(seed);
  std::vector<OpSample> samples;
  for (const std::int64_t length : {16, 18, 32, 48, 64, 67, 96, 128, 129, 192, 256, 261}) {
    for (const std::int64_t count : {1, 2, 4, 8, 16}) {
      OpSample sample;
      sample.op = op;
      sample.batch = padded(count, length);
      sample.seconds = test::planted_seconds(op, sample.batch) * (1 + noise * random.next());
      samples.push_back(sample);
    }
  }
  return samples;
}

}  // namespace

TEST_CASE("non-negative least squares is as good as the best of all sets of columns") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::uint64_t state = seed;
    const std::size_t width = 1 + seed % 5;
    std::vector<std::vector<double>> rows;
    std::vector<double> y;
    for (int i = 0; i < 12; ++i) {
      std::vector<double> row;
      for (std::size_t j = 0; j < width; ++j) {
        row.push_back(std::pow(10.0, static_cast<double>(3 * j)) * uniform(&state));
      }
      rows.push_back(row);
      y.push_back(0.1 + uniform(&state));
    }
    const std::vector<double> c = relative_nnls(rows, y);
    CHECK(*std::min_element(c.begin(), c.end()) >= 0);
    const double best = best_by_brute_force(rows, y);
    CHECK(residual(rows, y, c) <= best * (1 + 1e-9) + 1e-12);
  }
}

TEST_CASE("few rows stand for thousands in every least squares") {
  constexpr std::size_t kWidth = 4;
  std::uint64_t state = 1;
  std::vector<std::vector<double>> rows;
  std::vector<double> y;
  RelativeRows all(kWidth);
  RelativeRows parts(kWidth);
  for (int part = 0; part < 3; ++part) {
    RelativeRows own(kWidth);
    for (int i = 0; i < 700 * part + 5; ++i) {
      std::vector<double> row;
      for (std::size_t j = 0; j < kWidth; ++j) {
        row.push_back(std::pow(10.0, static_cast<double>(3 * j)) * uniform(&state));
      }
      rows.push_back(row);
      y.push_back(0.1 + uniform(&state));
      all.add(row, y.back());
      own.add(row, y.back());
    }
    parts.add(own);
  }
  CHECK(residual(rows, y, all.solve()) <= best_by_brute_force(rows, y) * (1 + 1e-9));
  for (const std::vector<bool>& used : {std::vector<bool>{}, {true, false, true, false}}) {
    const std::vector<double> c = all.solve(used);
    const std::vector<double> of_parts = parts.solve(used);
    for (std::size_t j = 0; j < kWidth; ++j) {
      CHECK(of_parts[j] == Approx(c[j]).epsilon(1e-9));
      CHECK((used.empty() || used[j] || c[j] == 0));
    }
    CHECK(all.squares(c) == Approx(residual(rows, y, c)).epsilon(1e-9));
    CHECK(parts.squares(c) == Approx(residual(rows, y, c)).epsilon(1e-9));
  }
}

TEST_CASE("equal rows fit by their sums as one by one") {
  constexpr std::size_t kWidth = 3;
  constexpr std::size_t kRows = 3000;
  std::uint64_t state = 2;
  std::vector<std::vector<double>> different;
  for (int i = 0; i < 7; ++i) {
    different.push_back({1, std::ceil(100 * uniform(&state)), std::ceil(9e4 * uniform(&state))});
  }
  DistinctRows together(kWidth, kRows);
  RelativeRows single(kWidth);
  RelativeRows sums(kWidth);
  std::vector<EqualRows> equal(different.size());
  std::vector<double> y;
  std::vector<double> weights;
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::vector<double>& row = different[i % different.size()];
    y.push_back((row[1] + 1e-3 * row[2]) * (0.5 + uniform(&state)));
    weights.push_back(uniform(&state));
    together.add(row);
    single.add(row, y.back(), weights.back());
    equal[i % different.size()].add(y.back(), weights.back());
  }
  for (std::size_t number = 0; number < different.size(); ++number) {
    sums.add(different[number], equal[number]);
  }
  CHECK(together.size() == kRows);
  CHECK(together.distinct() == different.size());
  CHECK(together.number(kRows - 1) == (kRows - 1) % different.size());
  const std::vector<double> c = single.solve();
  const std::vector<double> of_together = relative_nnls(together, y, weights);
  for (std::size_t j = 0; j < kWidth; ++j) {
    CHECK(of_together[j] == Approx(c[j]).epsilon(1e-9));
  }
  for (const std::vector<double>& any : {c, {1, 2, 3}, {0, 0, 0}}) {
    CHECK(sums.squares(any) == Approx(single.squares(any)).epsilon(1e-9));
    const std::vector<double> times = together.times(any);
    for (std::size_t number = 0; number < different.size(); ++number) {
      CHECK(times[number] == Approx(dot(any, different[number])).epsilon(1e-12));
    }
  }
  DistinctRows few(kWidth, 2);
  few.add(different[0]);
  few.add(different[0]);
  CHECK(few.distinct() == 2);
}

TEST_CASE("what is long is found among thousands of equal rows as among few") {
  constexpr std::size_t kFew = 600;
  constexpr std::size_t kTimes = 4;
  std::uint64_t state = 3;
  DistinctRows few(2, kFew);
  DistinctRows many(2, kTimes * kFew);
  std::vector<double> times;
  std::vector<double> all_times;
  for (std::size_t i = 0; i < kTimes * kFew; ++i) {
    const std::vector<double> row = {1, static_cast<double>(100 * (1 + i % 5))};
    if (i < kFew) {
      few.add(row);
      const double held_up = i % 20 == 3 ? 50 : 0;
      times.push_back(2 + 0.01 * row[1] + 0.1 * uniform(&state) + held_up);
    }
    many.add(row);
    all_times.push_back(times[i % kFew]);
  }
  CHECK(many.distinct() == 5);
  const std::vector<double> left = robust_excess(few, times);
  const std::vector<double> of_many = robust_excess(many, all_times);
  for (std::size_t i = 0; i < of_many.size(); ++i) {
    CHECK(of_many[i] == Approx(left[i % kFew]).epsilon(1e-6));
    CHECK((of_many[i] > 40) == (i % kFew % 20 == 3));
  }
}

TEST_CASE("planted coefficients come back to rounding without noise") {
  const std::vector<Series> all = make_series(planted_samples(attention_scores(), 0, 1));
  REQUIRE(all.size() == 1);
  const OpCost cost =
      fit_form({CostForm::Features, {"1", "tokens", "tokens*length"}}, all[0].op, all[0].points);
  CHECK(cost.coefficients[0] == Approx(5e-6).epsilon(1e-9));
  CHECK(cost.coefficients[1] == Approx(20e-9).epsilon(1e-9));
  CHECK(cost.coefficients[2] == Approx(0.8e-9).epsilon(1e-9));
}

TEST_CASE("planted coefficients come back within five standard errors with noise") {
  constexpr double kNoise = 0.03;
  const FormCandidate form{CostForm::Features, {"1", "tokens", "tokens*length"}};
  const std::vector<double> planted = {5e-6, 20e-9, 0.8e-9};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const std::vector<Series> all = make_series(planted_samples(attention_scores(), kNoise, seed));
    // Covariance of relative least squares: kNoise^2 (A^T A)^-1, rows divided by the times.
    Eigen::MatrixXd a(static_cast<Eigen::Index>(all[0].points.size()), 3);
    for (std::size_t i = 0; i < all[0].points.size(); ++i) {
      const SeriesPoint& point = all[0].points[i];
      const std::vector<double> row = feature_row(form, all[0].op, point.batch);
      for (std::size_t j = 0; j < 3; ++j) {
        a(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
            row[j] * planted[j] / test::planted_seconds(all[0].op, point.batch);
      }
    }
    const Eigen::MatrixXd covariance = (a.transpose() * a).inverse() * kNoise * kNoise;
    const OpCost cost = fit_form(form, all[0].op, all[0].points);
    for (std::size_t j = 0; j < 3; ++j) {
      const auto index = static_cast<Eigen::Index>(j);
      const double sigma = std::sqrt(covariance(index, index));
      CHECK(std::abs(cost.coefficients[j] / planted[j] - 1) < 5 * sigma + kNoise * kNoise);
    }
  }
}

TEST_CASE("a table gives back a line exactly, at its knots and between them") {
  const std::vector<Series> all = make_series(planted_samples(gemm(144, 48), 0, 1));
  const OpCost cost = fit_form({CostForm::Table, {}}, all[0].op, all[0].points);
  CHECK(cost.knots.size() <= 40);
  CHECK(cost.range_lo == 16);
  CHECK(cost.range_hi == 16 * 261);
  for (const std::int64_t tokens : {16, 17, 100, 1000, 3333, 4176}) {
    CAPTURE(tokens);
    const BatchShape batch = padded(1, tokens);
    CHECK(evaluate(cost, all[0].op, batch).seconds ==
          Approx(test::planted_seconds(all[0].op, batch)).epsilon(1e-9));
  }
}

TEST_CASE("of two products of equal sizes the one with a row a token is fitted") {
  const std::vector<OpSample> tokens = planted_samples(gemm(48, 48), 0, 1);
  std::vector<OpSample> samples = tokens;
  for (OpSample& sample : samples) {
    sample.op.rows = RowUnit::Samples;
    sample.seconds = 1e-6;
  }
  const auto fitted = [](std::vector<OpSample> first, const std::vector<OpSample>& second) {
    first.insert(first.end(), second.begin(), second.end());
    const std::vector<Series> all = make_series(first);
    REQUIRE(all.size() == 1);
    return fit_best(all[0]);
  };
  const OpCost expected = fit_best(make_series(tokens)[0]);
  CHECK(fitted(tokens, samples) == expected);
  CHECK(fitted(samples, tokens) == expected);
}

TEST_CASE("knots keep both ends, take medians of equal x, and are at most 40") {
  std::vector<std::pair<double, double>> pairs;
  for (int x = 1; x <= 200; ++x) {
    pairs.emplace_back(x, 2.0 * x);
    pairs.emplace_back(x, 2.0 * x);
    pairs.emplace_back(x, 1000.0);  // One of three is an outlier.
  }
  const auto knots = make_knots(pairs);
  CHECK(knots.size() <= 40);
  CHECK(knots.front() == std::pair(1.0, 2.0));
  CHECK(knots.back() == std::pair(200.0, 400.0));
  for (const auto& [x, y] : knots) {
    CHECK(y == Approx(2 * x));
  }
}

TEST_CASE("no table extrapolates in silence") {
  for (const Op& op : {gemm(144, 48), attention_scores()}) {
    const std::vector<Series> all = make_series(planted_samples(op, 0, 1));
    for (const FormCandidate& candidate : candidates_for(op)) {
      const OpCost cost = fit_form(candidate, op, all[0].points);
      CHECK(evaluate(cost, op, padded(16, 261)).extrapolation == 1);
      CHECK(evaluate(cost, op, padded(32, 522)).extrapolation > 1.9);
    }
  }
}

TEST_CASE("the form is chosen by held-out error") {
  // A staircase over tokens: no line fits it, a table does.
  std::vector<OpSample> stairs = planted_samples(gemm(144, 48), 0, 1);
  for (OpSample& sample : stairs) {
    sample.seconds = 1e-5 * std::pow(2, std::floor(std::log2(sample.batch.padded_tokens()) / 3));
  }
  CHECK(fit_best(make_series(stairs)[0]).form == CostForm::Table);
  // Time by samples as much as by tokens: no table over tokens fits it.
  std::vector<OpSample> both = planted_samples(gemm(144, 48), 0, 1);
  for (OpSample& sample : both) {
    sample.seconds = 1e-5 * static_cast<double>(sample.batch.samples) +
                     1e-7 * static_cast<double>(sample.batch.padded_tokens());
  }
  const OpCost cost = fit_best(make_series(both)[0]);
  CHECK(cost.form == CostForm::Features);
  CHECK(*cost.errors.random < 1e-6);
  CHECK(*cost.errors.block < 1e-6);
  CHECK(*cost.errors.beyond < 1e-6);
  // A start-up cost a call, and the square of the length: no table per sample fits it.
  CHECK(fit_best(make_series(planted_samples(attention_scores(), 0, 1))[0]).form ==
        CostForm::Features);
}

TEST_CASE("held-out errors see what the fit has not: noise comes back as error, bias stays small") {
  const OpCost cost = fit_best(make_series(planted_samples(attention_scores(), 0.05, 3))[0]);
  REQUIRE(cost.errors.random);
  REQUIRE(cost.errors.block);
  CHECK(*cost.errors.random > 0.02);
  CHECK(*cost.errors.random < 0.08);
  CHECK(std::abs(*cost.errors.bias) < 0.03);
}

TEST_CASE("the general entry prices sizes that were not measured") {
  std::vector<OpSample> samples;
  for (const auto& [n, k] : std::vector<std::pair<int, int>>{{144, 48}, {48, 48}, {96, 48}}) {
    const std::vector<OpSample> more = planted_samples(gemm(n, k), 0, 1);
    samples.insert(samples.end(), more.begin(), more.end());
  }
  for (const std::int64_t n : {100, 5000, 40000}) {
    OpSample sample;
    sample.op = elements_op(OpClass::GradientCopyIn, n, Dtype::F32);
    sample.batch = padded(1, 16);
    sample.seconds = test::planted_seconds(sample.op, sample.batch);
    samples.push_back(sample);
  }
  const std::vector<OpCost> general = fit_unmeasured_sizes(make_series(samples));
  REQUIRE(general.size() == 2);
  CHECK(general[0].form == CostForm::Roofline);
  const Op unseen = gemm(200, 77);
  CHECK(evaluate(general[0], unseen, padded(4, 64)).seconds ==
        Approx(test::planted_seconds(unseen, padded(4, 64))).epsilon(1e-6));
  const Op copy = elements_op(OpClass::GradientCopyIn, 12345, Dtype::F32);
  CHECK(evaluate(general[1], copy, padded(1, 1)).seconds ==
        Approx(test::planted_seconds(copy, padded(1, 1))).epsilon(1e-6));
}

TEST_CASE("copies that fall out of a cache are priced by a table over their elements") {
  std::vector<OpSample> samples;
  const auto seconds = [](std::int64_t n) {
    return 1e-9 * static_cast<double>(n) * (n > 50000 ? 4 : 1);
  };
  for (std::int64_t n = 100; n < 1000000; n *= 2) {
    OpSample sample;
    sample.op = elements_op(OpClass::GradientCopyOut, n, Dtype::F32);
    sample.batch = padded(1, 16);
    sample.seconds = seconds(n);
    samples.push_back(sample);
  }
  const std::vector<OpCost> general = fit_unmeasured_sizes(make_series(samples));
  REQUIRE(general.size() == 1);
  CHECK(general[0].form == CostForm::Table);
  for (const std::int64_t n : {150, 20000, 300000}) {
    const Op copy = elements_op(OpClass::GradientCopyOut, n, Dtype::F32);
    CHECK(evaluate(general[0], copy, {}).seconds == Approx(seconds(n)).epsilon(0.01));
  }
}

TEST_CASE("planted waves come back without noise, with the processors that the times show") {
  // Half the rows in a tile on twice the processors make the same waves: 84 or 168.
  constexpr std::int64_t kProcessors = 84;
  std::vector<Series> all;
  for (const auto& [n, k] : std::vector<std::pair<int, int>>{
           {2048, 1024}, {3072, 5120}, {5120, 2048}, {7168, 1024}, {11008, 4096}}) {
    all.push_back(wave_series(gemm(n, k), kProcessors, 0, 1));
  }
  const std::int64_t found = find_processors(all);
  CHECK(found % kProcessors == 0);
  for (const Series& series : all) {
    const OpCost cost = fit_best(series, found);
    CHECK(cost.form == CostForm::FeaturesRatio);
    for (const std::int64_t tokens : {100, 700, 1333, 2047}) {
      CAPTURE(tokens);
      CHECK(evaluate(cost, series.op, padded(1, tokens)).seconds ==
            Approx(wave_seconds(series.op, tokens, kProcessors)).epsilon(2e-3));
    }
    // Beyond the range the waves go on.
    CHECK(evaluate(cost, series.op, padded(1, 3900)).seconds ==
          Approx(wave_seconds(series.op, 3900, kProcessors)).epsilon(0.012));
  }
}

TEST_CASE("planted coefficients of waves come back within five standard errors with noise") {
  constexpr double kNoise = 0.02;
  constexpr std::int64_t kProcessors = 84;
  const Op op = gemm(4096, 2048);
  const std::vector<std::string> features = {"1", "tokens", planted_waves(op)};
  const std::vector<double> planted = {10e-6, 5e-9, 2048 * 10e-9};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const Series series = wave_series(op, kProcessors, kNoise, seed);
    Eigen::MatrixXd a(static_cast<Eigen::Index>(series.points.size()), 3);
    for (std::size_t i = 0; i < series.points.size(); ++i) {
      const BatchShape& batch = series.points[i].batch;
      for (std::size_t j = 0; j < 3; ++j) {
        a(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
            feature_value(features[j], op, batch, kProcessors) * planted[j] /
            wave_seconds(op, batch.max_length, kProcessors);
      }
    }
    const Eigen::MatrixXd covariance = (a.transpose() * a).inverse() * kNoise * kNoise;
    const OpCost cost =
        fit_form({CostForm::FeaturesRatio, features, false, 64, kProcessors}, op, series.points);
    REQUIRE(cost.features == features);
    for (std::size_t j = 0; j < 3; ++j) {
      const auto index = static_cast<Eigen::Index>(j);
      const double sigma = std::sqrt(covariance(index, index));
      CHECK(std::abs(cost.coefficients[j] / planted[j] - 1) < 5 * sigma + kNoise * kNoise);
    }
    for (const auto& [tokens, ratio] : cost.knots) {
      CHECK(ratio == Approx(1).epsilon(5 * kNoise));
    }
  }
}

TEST_CASE("weights of a GEMM ratio give planted ratios back") {
  std::vector<GemmPoint> points;
  std::vector<double> first;
  std::uint64_t state = 7;
  for (int i = 0; i < 3000; ++i) {
    const auto draw = [&state](double lo, double hi) {
      return std::floor(lo * std::pow(hi / lo, uniform(&state)));
    };
    GemmPoint point{draw(64, 4096), draw(512, 16384), draw(512, 16384), 0};
    const double ratio = std::pow(point.m / 1024, 0.1) * std::pow(point.k / 4096, -0.05) * 1.2;
    first.push_back(1e-12 * point.m * point.n * point.k);
    point.seconds = first.back() * ratio;
    points.push_back(point);
  }
  const GemmRatio fitted = fit_gemm_ratio(points, first, std::vector<std::int64_t>{108, 54});
  for (const double m : {100.0, 1000.0, 3000.0}) {
    CHECK(gemm_ratio(fitted, m, 3000, 5000) ==
          Approx(std::pow(m / 1024, 0.1) * std::pow(5000.0 / 4096, -0.05) * 1.2).epsilon(0.02));
  }
}

TEST_CASE("forms of a GPU are fitted to tiny and constant series too") {
  for (const int count : {1, 2, 3, 5}) {
    CAPTURE(count);
    Series series{gemm(1024, 1024), {}};
    for (int i = 1; i <= count; ++i) {
      series.points.push_back({padded(1, 64 * i), 1e-5});
    }
    for (const FormCandidate& candidate : candidates_for(series.op, 108)) {
      const OpCost cost = fit_form(candidate, series.op, series.points);
      CHECK(evaluate(cost, series.op, padded(1, 64)).seconds == Approx(1e-5).epsilon(0.05));
    }
  }
}

TEST_CASE("a class with one series of few points gets no general entry") {
  std::vector<OpSample> samples = planted_samples(gemm(144, 48), 0, 1);
  samples.resize(7);
  CHECK(fit_unmeasured_sizes(make_series(samples)).empty());
  samples = planted_samples(gemm(144, 48), 0, 1);
  samples.resize(8);
  CHECK(fit_unmeasured_sizes(make_series(samples)).size() == 1);
}

TEST_CASE("knots that the others give are left out, to a tolerance") {
  const Knots knots = {{0, 1}, {1, 2}, {2, 3.01}, {3, 4}, {4, 3}};
  CHECK(prune_knots(knots, 0.01) == Knots{{0, 1}, {3, 4}, {4, 3}});
  CHECK(prune_knots(knots, 0.001) == knots);
  CHECK(prune_knots({{1, 2}}, 0.1) == Knots{{1, 2}});
  const Knots dense = prune_knots(knots, 0.01);
  for (const auto& [x, value] : knots) {
    CHECK(interpolate(dense, x) == Approx(value).epsilon(0.01));
  }
}

TEST_CASE("a device's table keeps both sides of a step, a CPU's smooths neighbours") {
  Op op = gemm(144, 48);
  std::vector<SeriesPoint> points;
  for (const std::int64_t tokens : {512, 1024, 1028, 2048, 2052, 4096}) {
    const auto tiles = static_cast<double>((tokens + 127) / 128);
    points.push_back({{1, tokens, tokens, static_cast<double>(tokens * tokens)}, tiles * 1e-5});
  }
  const auto seconds = [&](std::int64_t processors, std::int64_t tokens) {
    const OpCost table = fit_form(candidates_for(op, processors).front(), op, points);
    CHECK(table.form == CostForm::Table);
    return evaluate(table, op, {1, tokens, tokens, 0}).seconds;
  };
  CHECK(seconds(108, 1024) == Approx(8e-5));
  CHECK(seconds(108, 1028) == Approx(9e-5));
  CHECK(seconds(0, 1026) == Approx(8.5e-5));
}

}  // namespace stepsim
