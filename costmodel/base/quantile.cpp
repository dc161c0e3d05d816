#include "costmodel/base/quantile.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

namespace stepsim {
namespace {

/// Before main() Boost tries a number that only an extended double holds. Where those are doubles,
/// as under valgrind, that would be an error, and the end of every program.
namespace policies = boost::math::policies;
using IgnoresOverflow = policies::policy<policies::overflow_error<policies::ignore_error>>;

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) {
    return 0;
  }
  const double position = q * static_cast<double>(values.size() - 1);
  const auto low = values.begin() + static_cast<std::ptrdiff_t>(position);
  std::ranges::nth_element(values, low);
  const auto next = std::next(low) == values.end() ? low : std::min_element(low + 1, values.end());
  return *low + (position - std::floor(position)) * (*next - *low);
}

double sorted_quantile(std::span<const double> values, double q) {
  if (values.empty()) {
    return 0;
  }
  const double position = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(position);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (position - static_cast<double>(low)) * (values[high] - values[low]);
}

double student_quantile(double freedom, double q) {
  return boost::math::quantile(
      boost::math::students_t_distribution<double, IgnoresOverflow>(freedom), q);
}

double normal_quantile(double q) {
  return boost::math::quantile(boost::math::normal_distribution<double, IgnoresOverflow>(), q);
}

}  // namespace stepsim
