#include "costmodel/network/interference.h"

#include <algorithm>

namespace stepsim {

namespace {

int waves(int blocks, int multiprocessors) {
  return (blocks + multiprocessors - 1) / multiprocessors;
}

}  // namespace

double compute_slowdown(const Interference& interference, Bound bound, int blocks, int channels) {
  if (bound == Bound::Unaffected) {
    return 1;
  }
  double share = 1;
  const int all = interference.multiprocessors;
  if (bound == Bound::Compute && all > 0 && channels > 0) {
    const int wanted = blocks > 0 ? blocks : all;
    const int left = std::max(1, all - channels);
    share = static_cast<double>(waves(wanted, left)) / waves(wanted, all);
  } else if (bound == Bound::Memory) {
    share = 1 / (1 - std::min(interference.memory_share, 0.99));
  }
  return (1 + interference.compute) * std::min(share, 1 + interference.limit);
}

}  // namespace stepsim
