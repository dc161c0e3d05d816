#include "calibrate/measure/stopping.h"

#include <algorithm>
#include <cmath>

#include "calibrate/samples/statistics.h"

namespace stepsim {

void Stopping::add(double seconds) {
  seconds_.push_back(seconds);
  total_ += seconds;
  noise_.push_back(noise());
}

double Stopping::noise() const {
  if (seconds_.size() < 2) {
    return std::numeric_limits<double>::infinity();
  }
  const double center = median(seconds_);
  return center > 0 ? robust_deviation(seconds_) / center : 0;
}

double Stopping::relative_error() const {
  return 1.2533 * noise() / std::sqrt(static_cast<double>(seconds_.size()));
}

bool Stopping::noise_is_stable() const {
  const auto window = static_cast<std::size_t>(std::max(rule_.stable_window, 2));
  if (noise_.size() < 2 * window) {
    return false;
  }
  const auto first = noise_.end() - static_cast<std::ptrdiff_t>(window);
  const auto [lo, hi] = std::minmax_element(first, noise_.end());
  return *hi - *lo <= rule_.stable_change * *hi;
}

StopReason Stopping::reason() const {
  if (total_ >= rule_.max_seconds) {
    return StopReason::OutOfTime;
  }
  if (repetitions() < rule_.min_repetitions) {
    return StopReason::None;
  }
  if (relative_error() <= rule_.target) {
    return StopReason::Precise;
  }
  return noise_is_stable() ? StopReason::StableNoise : StopReason::None;
}

}  // namespace stepsim
