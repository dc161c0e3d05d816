#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "sim/predict/draws/lane_schedule.h"

namespace stepsim {

/// What a rank has launched on one stream, in each lane: no more than so many kernels wait there or
/// are under way, and the host waits to launch another one.
class LaneQueue {
 public:
  explicit LaneQueue(std::size_t depth) : depth_(depth) {}

  /// Lets the host wait until there is room for one more.
  void wait(LaneTimes& host) const {
    if (ends_.size() < depth_) {
      return;
    }
    const LaneTimes& room = ends_[next_];
    for (std::size_t l = 0; l < host.size(); ++l) {
      host[l] = std::max(host[l], room[l]);
    }
  }
  /// Adds a kernel. `end`: [lane] of it.
  void push(const LaneTimes& end) {
    if (ends_.size() < depth_) {
      ends_.push_back(end);
      return;
    }
    ends_[next_] = end;
    next_ = next_ + 1 < depth_ ? next_ + 1 : 0;
  }

 private:
  std::size_t depth_;
  std::vector<LaneTimes> ends_;  ///< Of the last launches, as a ring.
  std::size_t next_ = 0;         ///< The oldest of them.
};

}  // namespace stepsim
