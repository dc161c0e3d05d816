#include "calibrate/fit/piecewise_linear.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace stepsim {
namespace {

using KnotSpan = std::span<const std::pair<double, double>>;

constexpr std::size_t kMaxSegments = 8;
constexpr std::size_t kFewKnots = 40;
constexpr std::size_t kMarks = 30;
constexpr std::size_t kFewestKnots = 2;  ///< Fewest knots of a segment.
/// Mean squares below this are rounding.
constexpr double kExactFit = 1e-12;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Sums over the knots before each place, which give the least squares of any range of them.
class RelativeLines {
 public:
  explicit RelativeLines(KnotSpan knots) : sums_(1) {
    for (const auto& [x, y] : knots) {
      const double one = 1 / y;
      const double slope = x / knots.back().first / y;
      Sums next = sums_.back();
      next.one += one;
      next.slope += slope;
      next.one_one += one * one;
      next.one_slope += one * slope;
      next.slope_slope += slope * slope;
      sums_.push_back(next);
    }
  }

  /// The least sum of ((a + b x) / y - 1)^2 over the knots first .. last - 1.
  [[nodiscard]] double squares(std::size_t first, std::size_t last) const {
    const Sums& before = sums_[first];
    const Sums& upto = sums_[last];
    const double one = upto.one - before.one;
    const double slope = upto.slope - before.slope;
    const double one_one = upto.one_one - before.one_one;
    const double one_slope = upto.one_slope - before.one_slope;
    const double slope_slope = upto.slope_slope - before.slope_slope;
    const double determinant = one_one * slope_slope - one_slope * one_slope;
    double a = (one * slope_slope - slope * one_slope) / determinant;
    double b = (slope * one_one - one * one_slope) / determinant;
    if (!(determinant > 0) || b < 0) {
      a = one / one_one;
      b = 0;
    } else if (a < 0) {
      a = 0;
      b = slope / slope_slope;
    }
    const double fitted = a * a * one_one + 2 * a * b * one_slope + b * b * slope_slope;
    return std::max(fitted - 2 * a * one - 2 * b * slope + static_cast<double>(last - first), 0.0);
  }

 private:
  struct Sums {
    double one = 0;    ///< The sum of 1 / y.
    double slope = 0;  ///< The sum of x / y, x relative to the last.
    double one_one = 0;
    double one_slope = 0;
    double slope_slope = 0;
  };
  std::vector<Sums> sums_;
};

/// The places where a segment may start or end, from 0 to the number of knots.
std::vector<std::size_t> places_of(KnotSpan knots) {
  std::vector<std::size_t> places = {0};
  const double first = std::log(knots.front().first);
  const double step = (std::log(knots.back().first) - first) / static_cast<double>(kMarks);
  const bool few = knots.size() <= kFewKnots;
  const std::size_t marks = few ? knots.size() : kMarks;
  for (std::size_t i = 1; i < marks; ++i) {
    const double mark = std::exp(first + step * static_cast<double>(i));
    const auto above =
        std::lower_bound(knots.begin(), knots.end(), mark, [](const auto& knot, double x) {
          return knot.first < x;
        });
    const std::size_t place = few ? i : static_cast<std::size_t>(above - knots.begin());
    if (place > places.back() && place < knots.size()) {
      places.push_back(place);
    }
  }
  places.push_back(knots.size());
  return places;
}

}  // namespace

std::size_t last_segment_start(KnotSpan knots) {
  const RelativeLines lines(knots);
  const std::vector<std::size_t> places = places_of(knots);
  const std::size_t end = places.size() - 1;
  const auto count = static_cast<double>(knots.size());
  // [place] The least squares of `segments` segments up to there; each round adds one segment.
  std::vector<double> least(places.size(), kInfinity);
  least[0] = 0;
  double lowest = kInfinity;
  std::size_t start = 0;
  for (std::size_t segments = 1; segments <= std::min(kMaxSegments, end); ++segments) {
    std::vector<double> next(places.size(), kInfinity);
    std::size_t start_of_last = 0;
    for (std::size_t to = 1; to <= end; ++to) {
      for (std::size_t from = 0; from < to; ++from) {
        if (least[from] == kInfinity || places[to] - places[from] < kFewestKnots) {
          continue;
        }
        const double squares = least[from] + lines.squares(places[from], places[to]);
        if (squares < next[to]) {
          next[to] = squares;
          start_of_last = to == end ? places[from] : start_of_last;
        }
      }
    }
    const double parameters = 3 * static_cast<double>(segments) - 1;
    const double criterion =
        count * std::log(std::max(next[end] / count, kExactFit)) + parameters * std::log(count);
    if (criterion < lowest) {
      lowest = criterion;
      start = start_of_last;
    }
    least = std::move(next);
  }
  return start;
}

}  // namespace stepsim
