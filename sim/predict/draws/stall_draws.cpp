#include "sim/predict/draws/stall_draws.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace stepsim {
namespace {

/// Longer ones, in mean steps, are the training's own: checkpoints, evaluations.
constexpr double kLongestByClock = 2;

}  // namespace

StallDraws::StallDraws(const StallNoise& stalls, double step_ms, int steps) {
  if (!(stalls.per_step > 0) || stalls.seconds.empty()) {
    return;
  }
  const double rate = stalls.per_step / static_cast<double>(stalls.seconds.size());
  const double recorded = stalls.steps;
  const double longer = stalls.step_seconds > 0 ? step_ms / (1e3 * stalls.step_seconds) : 1;
  double counted = 0;  // By the clock, in the record,
  double squares = 0;  // and a step, times the square of their length.
  for (const double seconds : stalls.seconds) {
    const bool by_clock =
        stalls.step_seconds > 0 && seconds < kLongestByClock * stalls.step_seconds;
    const double length_ms = 1e3 * seconds;
    lengths_ms_.push_back(length_ms);
    rates_.push_back(rate * (by_clock ? longer * stalls.counted_share() : 1));
    per_step_ += rates_.back();
    if (by_clock) {
      counted += rate * recorded;
      by_clock_ms_ += rates_.back() * length_ms;
      squares += rates_.back() * length_ms * length_ms;
    }
  }
  if (per_step_ > 1) {
    const double most = 1 / per_step_;
    for (double& one : rates_) {
      one *= most;
    }
    by_clock_ms_ *= most;
    squares *= most;
    per_step_ = 1;
  }
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    mean_ms_ += rates_[i] * lengths_ms_[i];
  }
  if (by_clock_ms_ > 0) {
    // The sum of a number of lengths, where the number is Poisson's.
    const double by_clock_rate = counted / recorded * longer * stalls.counted_share();
    const double spread = squares * by_clock_rate / (by_clock_ms_ * by_clock_ms_);
    recorded_sd_ = std::sqrt(std::max(spread, 1.0) / counted);
    run_sd_ = std::sqrt(squares / steps) / by_clock_ms_;
  }
}

double StallDraws::drawn_ms(const std::string& policy, ErrorDraws& errors) const {
  if (!(by_clock_ms_ > 0)) {
    return mean_ms_;
  }
  const double drawn =
      errors.factor("stalls", recorded_sd_) * errors.factor("stalls of " + policy, run_sd_);
  // Factors have the median 1.
  const double variance = recorded_sd_ * recorded_sd_ + run_sd_ * run_sd_;
  return mean_ms_ + by_clock_ms_ * (drawn * std::exp(-variance / 2) - 1);
}

void StallDraws::add_to(std::vector<double>& step_ms) const {
  const auto count =
      static_cast<std::size_t>(std::llround(per_step_ * static_cast<double>(step_ms.size())));
  std::vector<double> due(rates_.size(), 0.0);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t stall = 0; stall < due.size(); ++stall) {
      due[stall] += rates_[stall] / per_step_;
    }
    constexpr double kRounding = 1e-9;  // Of equals the first one is next.
    auto next = due.begin();
    for (auto stall = due.begin(); stall != due.end(); ++stall) {
      next = *stall > *next + kRounding ? stall : next;
    }
    *next -= 1;
    const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    step_ms[static_cast<std::size_t>(place * static_cast<double>(step_ms.size()))] +=
        lengths_ms_[static_cast<std::size_t>(next - due.begin())];
  }
}

}  // namespace stepsim
