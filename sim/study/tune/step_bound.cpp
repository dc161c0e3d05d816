#include "sim/study/tune/step_bound.h"

#include <algorithm>

namespace stepsim {

double least_step_s(const WorkBound& work, const ReduceBound& reduce) {
  if (work.ready_s.empty()) {
    return 0;
  }
  double until_reduced = work.ready_s.back();
  // The all-reduces of a bucket and of those after it; before the rebuild, of the last one alone.
  double following = reduce.initial_last_s / reduce.streams;
  double rounding = work.rounding_s;
  for (auto bucket = reduce.buckets.rbegin(); bucket != reduce.buckets.rend(); ++bucket) {
    following += bucket->seconds / reduce.streams;
    until_reduced = std::max(until_reduced, work.ready_s[bucket->op] + following);
    rounding += 1e-9;
  }
  const double initial = (reduce.initial_s - reduce.initial_last_s) / reduce.streams;
  until_reduced = std::max(until_reduced, following + initial + reduce.gather_s / reduce.streams);
  const double device = until_reduced + reduce.copy_out_s + reduce.after_s / reduce.streams;
  const double host = work.host_s - work.warmup_s - work.warmup_share * reduce.warmup_s;
  return std::max(0.0, std::max(device, reduce.known ? host : 0) - rounding);
}

}  // namespace stepsim
