#pragma once

#include <limits>
#include <vector>

namespace stepsim {

/// Says when one thing has been measured often enough.
struct StoppingRule {
  double target = 0.01;  ///< The relative standard error of the median that is enough.
  int min_repetitions = 9;
  double max_seconds = std::numeric_limits<double>::infinity();  ///< All measurements together.
  /// The noise counts as stable when its estimate moved by less than this fraction over the last
  /// `stable_window` repetitions. More repetitions would only confirm it.
  double stable_change = 0.02;
  int stable_window = 30;
};

enum class StopReason { None, Precise, OutOfTime, StableNoise };

/// Collects repetitions of one measurement and says when to stop.
class Stopping {
 public:
  explicit Stopping(StoppingRule rule) : rule_(rule) {}

  void add(double seconds);
  [[nodiscard]] StopReason reason() const;
  [[nodiscard]] bool done() const { return reason() != StopReason::None; }
  [[nodiscard]] int repetitions() const { return static_cast<int>(seconds_.size()); }

  /// The standard error of the median over the median: 1.2533 * noise() / sqrt(n), as for a normal
  /// distribution. It is infinite below two repetitions.
  [[nodiscard]] double relative_error() const;
  /// The robust standard deviation (1.4826 * median absolute deviation) over the median.
  [[nodiscard]] double noise() const;

 private:
  [[nodiscard]] bool noise_is_stable() const;

  StoppingRule rule_;
  std::vector<double> seconds_;
  std::vector<double> noise_;  ///< noise() after each repetition.
  double total_ = 0;
};

}  // namespace stepsim
