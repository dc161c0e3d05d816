#include "calibrate/samples/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
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

double student_widening(std::size_t values) {
  constexpr double kUpper = 0.95;  // Of a 90 % interval.
  return student_quantile(static_cast<double>(values - 1), kUpper) / normal_quantile(kUpper);
}

std::vector<double> quantiles_over_mean(const std::vector<double>& values) {
  constexpr int kIntervals = 40;
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  std::vector<double> quantiles;
  quantiles.reserve(kIntervals + 1);
  for (int i = 0; i < kIntervals; ++i) {
    quantiles.push_back(sorted_quantile(sorted, static_cast<double>(i) / kIntervals));
  }
  double sum = 0;
  double count = 0;
  for (const double value : values) {
    if (value >= quantiles.back()) {
      sum += value;
      count += 1;
    }
  }
  quantiles.push_back(std::max(quantiles.back(), 2 * sum / count - quantiles.back()));
  double mean = 0;  // The mean of draws between them.
  for (std::size_t i = 0; i + 1 < quantiles.size(); ++i) {
    mean += (quantiles[i] + quantiles[i + 1]) / (2.0 * kIntervals);
  }
  for (double& value : quantiles) {
    value /= mean;
  }
  return quantiles;
}

std::vector<std::size_t> thinned_places(std::size_t size, std::size_t count) {
  std::vector<std::size_t> places;
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < size; ++i) {
    state = state * 1664525U + 1013904223U;
    if (static_cast<double>(state) * 0x1p-32 * static_cast<double>(size) <
        static_cast<double>(count)) {
      places.push_back(i);
    }
  }
  return places;
}

}  // namespace stepsim
