#include "costmodel/base/quantile.h"

#include <algorithm>

namespace stepsim {

double quantile(std::vector<double> values, double q) {
  if (values.empty()) {
    return 0;
  }
  std::ranges::sort(values);
  const double position = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(position);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (position - static_cast<double>(low)) * (values[high] - values[low]);
}

}  // namespace stepsim
