#include "calibrate/fit/piecewise_linear.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/fit/nnls.h"
#include "tests/calibrate/measure/fake_backend.h"

namespace stepsim {
namespace {

using Knots = std::vector<std::pair<double, double>>;

/// Sizes a factor `ratio` apart whose time changes its line where `changes` says: each (from, a,
/// b).
struct Line {
  double from;
  double a;
  double b;
};

Knots lines(const std::vector<Line>& changes, double first, double last, double ratio) {
  Knots knots;
  for (double x = first; x <= last * (1 + 1e-9); x *= ratio) {
    const Line* line = &changes.front();
    for (const Line& change : changes) {
      line = x >= change.from ? &change : line;
    }
    knots.emplace_back(x, line->a + line->b * x);
  }
  return knots;
}

/// Least relative squares of the knots first .. last - 1.
double squares(const Knots& knots, std::size_t first, std::size_t last) {
  std::vector<std::vector<double>> rows;
  std::vector<double> y;
  for (std::size_t i = first; i < last; ++i) {
    rows.push_back({1, knots[i].first});
    y.push_back(knots[i].second);
  }
  const std::vector<double> c = relative_nnls(rows, y);
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    sum += std::pow(dot(c, rows[i]) / y[i] - 1, 2);
  }
  return sum;
}

/// The same by trying every set of ends.
std::size_t by_brute_force(const Knots& knots) {
  const std::size_t count = knots.size();
  const auto n = static_cast<double>(count);
  double lowest = std::numeric_limits<double>::infinity();
  std::size_t start = 0;
  for (unsigned ends = 0; ends < (1U << (count - 1)); ++ends) {
    std::vector<std::size_t> places = {0};
    for (std::size_t i = 1; i < count; ++i) {
      if ((ends >> (i - 1) & 1U) != 0) {
        places.push_back(i);
      }
    }
    places.push_back(count);
    double sum = 0;
    bool wide = true;
    for (std::size_t i = 1; i < places.size(); ++i) {
      wide = wide && places[i] - places[i - 1] >= 2;
      sum += wide ? squares(knots, places[i - 1], places[i]) : 0;
    }
    const double pieces = static_cast<double>(places.size()) - 1;
    const double criterion =
        n * std::log(std::max(sum / n, 1e-12)) + (3 * pieces - 1) * std::log(n);
    if (wide && pieces <= 8 && criterion < lowest - 1e-6) {
      lowest = criterion;
      start = places[places.size() - 2];
    }
  }
  return start;
}

}  // namespace

TEST_CASE("the last piece starts where the line last changed") {
  const Knots sparse = lines({{0, 10, 0}, {300, 12, 0.05}, {20000, 500, 0.02}}, 8, 1 << 22, 2);
  CHECK(sparse[last_segment_start(sparse)].first == 32768);
  // Dense: to the mark that is next to the change, a thirtieth of the range in log x.
  const Knots dense = lines({{0, 10, 0.1}, {3000, 200, 0.02}}, 100, 10000, 1.005);
  CHECK(dense.size() > 900);
  CHECK(std::abs(std::log(dense[last_segment_start(dense)].first / 3000)) < std::log(100) / 30);
  CHECK(last_segment_start(lines({{0, 10, 0.1}}, 1, 1e6, 2)) == 0);
  CHECK(last_segment_start(Knots{{1, 2}}) == 0);
  CHECK(last_segment_start(Knots{{1, 2}, {2, 1}, {3, 2}}) == 0);
}

TEST_CASE("the pieces are the best of all, as brute force finds them") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::Noise random(seed);
    Knots knots = lines({{0, 10, 0}, {100, 5, 0.1}, {2000, 60, 0.04}}, 8, 1 << 14, 2);
    for (auto& [x, y] : knots) {
      y *= 1 + 0.05 * std::tanh(random.next());
    }
    CHECK(last_segment_start(knots) == by_brute_force(knots));
  }
}

}  // namespace stepsim
