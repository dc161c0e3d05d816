#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/fit/holdout.h"
#include "calibrate/fit/knot_fit.h"
#include "calibrate/fit/residual_plot.h"
#include "calibrate/fit/warnings.h"
#include "costmodel/compute/op_cost.h"
#include "tests/approx.h"
#include "tests/calibrate/measure/fake_backend.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

/// A GEMM timed at 64, 128, … tokens, `count` of them.
template <typename Seconds>
Series series_of(int count, const Seconds& seconds) {
  Series series;
  series.op.op_class = OpClass::Gemm;
  series.op.n = 8;
  series.op.k = 4;
  for (int i = 1; i <= count; ++i) {
    const std::int64_t tokens = 64 * i;
    const auto length = static_cast<double>(tokens);
    series.points.push_back({{1, tokens, tokens, length * length}, seconds(length)});
  }
  return series;
}

std::vector<std::string> warnings_of(const Series& series) {
  return fit_warnings(series, fit_best(series));
}

double line(double tokens) {
  return 1e-5 + 1e-8 * tokens;
}

BatchShape one_sample(std::int64_t tokens) {
  const auto length = static_cast<double>(tokens);
  return {1, tokens, tokens, length * length};
}

}  // namespace

TEST_CASE("good samples give no warning") {
  CHECK(warnings_of(series_of(20, line)).empty());
  CHECK(warnings_of(series_of(4, line)).empty());
  test::Noise random(1);
  CHECK(warnings_of(series_of(20, [&](double tokens) {
          return line(tokens) * (1 + 0.03 * random.next());
        })).empty());
}

TEST_CASE("tiny samples are warned about and priced by what is there") {
  const Series series = series_of(3, line);
  CHECK(warnings_of(series) ==
        std::vector<std::string>{
            "gemm forward n=8 k=4: only 3 different sizes were measured; its error is unknown"});
  CHECK_FALSE(fit_best(series).errors.random);
  CHECK(evaluate(fit_best(series), series.op, one_sample(128)).seconds == Approx(line(128)));
  const Series one = series_of(1, line);
  CHECK(evaluate(fit_best(one), one.op, one_sample(64)).seconds == Approx(line(64)));
}

TEST_CASE("constant samples are warned about") {
  const Series series = series_of(20, [](double) { return 1e-4; });
  CHECK(warnings_of(series) ==
        std::vector<std::string>{
            "gemm forward n=8 k=4: takes the same time at all sizes from 64 to 1280"});
  CHECK(evaluate(fit_best(series), series.op, one_sample(100)).seconds == Approx(1e-4));
}

TEST_CASE("samples that fall are warned about, on the right side of 70 %") {
  const auto fallen = [](double share) {
    return [share](double tokens) { return tokens == 640 ? line(576) * share : line(tokens); };
  };
  CHECK(warnings_of(series_of(20, fallen(0.71))).empty());
  CHECK(warnings_of(series_of(20, fallen(0.69))) ==
        std::vector<std::string>{
            "gemm forward n=8 k=4: at size 640 it took 31 % less than at a smaller size"});
}

TEST_CASE("samples that are all noise are warned about, and their fit stays inside of them") {
  test::Noise random(3);
  const Series series =
      series_of(30, [&](double tokens) { return line(tokens) * std::exp(0.8 * random.next()); });
  const std::vector<std::string> warnings = warnings_of(series);
  REQUIRE_FALSE(warnings.empty());
  CHECK(warnings.back().find("on held-out points; too noisy") != std::string::npos);
  double most = 0;
  for (const SeriesPoint& point : series.points) {
    most = std::max(most, point.seconds);
  }
  for (const std::int64_t tokens : {64, 500, 1900}) {
    const double seconds = evaluate(fit_best(series), series.op, one_sample(tokens)).seconds;
    CHECK(seconds > 0);
    CHECK(seconds <= most);
  }
}

TEST_CASE("the residual plot has a panel for each class and pass, and a dot for each point") {
  const Series series = series_of(20, line);
  std::vector<Residual> residuals = residuals_of(series, fit_best(series));
  REQUIRE(residuals.size() == 20);
  CHECK(residuals[3].panel == "gemm forward");
  CHECK(residuals[3].size == 256);
  CHECK(std::abs(residuals[3].error) < 1e-9);
  residuals.push_back({"a & b", 10, 99});  // Far outside: drawn at the edge.
  const std::string svg = residual_plot("x", residuals);
  const auto count = [&svg](const std::string& text) {
    int found = 0;
    for (std::size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) {
      ++found;
    }
    return found;
  };
  CHECK(count("<circle") == 21);
  CHECK(count("gemm forward, 20 points") == 1);
  CHECK(count("a &amp; b, 1 points") == 1);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(residual_plot("x", {}).find("</svg>") != std::string::npos);
}

TEST_CASE("monotone fits never fall, and keep what ascends") {
  std::vector<std::pair<double, double>> knots = {{1, 1}, {2, 4}, {3, 2}, {4, 5}};
  make_monotone(&knots);
  // 4 and 2 become their mean with weights 1/16 and 1/4: (4/16 + 2/4) / (5/16) = 2.4.
  CHECK(knots[0].second == 1);
  CHECK(knots[1].second == Approx(2.4));
  CHECK(knots[2].second == Approx(2.4));
  CHECK(knots[3].second == 5);
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    test::Noise random(seed);
    const Series series =
        series_of(40, [&](double tokens) { return line(tokens) * std::exp(0.2 * random.next()); });
    for (const std::int64_t processors : {0, 108}) {
      const OpCost cost = fit_best(series, processors, true);
      double last = 0;
      for (std::int64_t tokens = 1; tokens < 6000; tokens += 7) {
        const double seconds = evaluate(cost, series.op, one_sample(tokens)).seconds;
        CHECK(seconds >= last * (1 - 1e-12));
        last = seconds;
      }
    }
  }
}

}  // namespace stepsim
