#include "calibrate/cuda/timing/launch_queue.h"

#include <algorithm>

#include "calibrate/cuda/eager/eager.h"

namespace stepsim::cuda {

std::vector<int> most_launches(const std::vector<Op>& ops,
                               const std::vector<std::vector<int>>& buckets) {
  std::vector<int> launches;
  std::size_t bucket = 0;
  for (const Op& op : ops) {
    int most = kLaunchesOfOp;
    if (op.op_class == OpClass::GradientCopyOut) {
      most = static_cast<int>(buckets[bucket++].size());
    } else if (op.op_class == OpClass::Optimizer) {
      most = std::max(most, static_cast<int>(foreach_adamw_launches(op.n)));
    }
    launches.push_back(most);
  }
  return launches;
}

}  // namespace stepsim::cuda
