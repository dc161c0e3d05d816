#include "calibrate/samples/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "costmodel/base/mapped.h"

namespace stepsim {

double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

double trimmed_mean(std::vector<double> values, double left_out) {
  std::ranges::sort(values);
  const auto count = static_cast<double>(values.size());
  values.resize(values.size() - static_cast<std::size_t>(left_out * count));
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double robust_deviation(const std::vector<double>& values) {
  const double center = median(values);
  std::vector<double> deviations =
      mapped(values, [&](const double value) { return std::abs(value - center); });
  return 1.4826 * median(std::move(deviations));
}

}  // namespace stepsim
