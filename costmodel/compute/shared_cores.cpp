#include "costmodel/compute/shared_cores.h"

#include <algorithm>
#include <numeric>

namespace stepsim {

std::vector<double> shared_core_factors(std::span<const double> seconds, double cores) {
  std::vector<std::size_t> order(seconds.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return seconds[a] < seconds[b]; });
  std::vector<double> factors(seconds.size(), 1.0);
  double now = 0;
  double done = 0;  // The core time that every rank that still computes has received.
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double computing = static_cast<double>(order.size() - i);
    now += (seconds[order[i]] - done) * std::max(1.0, computing / cores);
    done = seconds[order[i]];
    factors[order[i]] = done > 0 ? now / done : 1;
  }
  return factors;
}

}  // namespace stepsim
