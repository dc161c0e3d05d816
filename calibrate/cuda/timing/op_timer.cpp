#include "calibrate/cuda/timing/op_timer.h"

#include <algorithm>
#include <cmath>

namespace stepsim::cuda {

std::optional<double> OpTimer::seconds(const Put& put, int calls) {
  stream_.synchronize();
  hold_.start();
  hold_.hold(stream_);
  begin_.record(stream_);
  for (int call = 0; call < calls; ++call) {
    put();
  }
  end_.record(stream_);
  hold_.release();
  at_work_();
  stream_.synchronize();
  return hold_.expired() ? std::nullopt : std::optional(seconds_between(begin_, end_) / calls);
}

std::optional<double> OpTimer::seconds(const Put& put) {
  constexpr double kEnough = 1e-4;
  constexpr double kMostCalls = 32;
  const std::optional<double> one = seconds(put, 1);
  if (!one || *one >= kEnough) {
    return one;
  }
  const double calls = std::ceil(kEnough / std::max(*one, kEnough / kMostCalls));
  return seconds(put, static_cast<int>(std::min(calls, kMostCalls)));
}

}  // namespace stepsim::cuda
