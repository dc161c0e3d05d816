#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "costmodel/base/units.h"

namespace stepsim {

/// One step by the times that no bucket changes, for choosing where buckets end. Places are the
/// gradients in the order in which they are launched; all times count from the start of the step.
struct GradientSchedule {
  /// [place] when all ranks can launch a bucket that ends here; never falls.
  std::vector<Duration> ready;
  /// [place] from the end of the all-reduce of a bucket that begins here to the end of the step:
  /// the copies out of this bucket and of those after it, the optimizer. Never rises.
  std::vector<Duration> tail;
  Duration floor{0};  ///< The step with free communication: it is never shorter.
};

/// What an all-reduce of the places first..end-1 takes; none where that is not known.
using BucketTime = std::function<std::optional<Duration>(std::size_t first, std::size_t end)>;

/// Where the buckets of a step end, and what the step then takes.
struct Partition {
  std::vector<std::size_t> ends;  ///< [bucket] the place after its last one, ascending.
  Duration step{0};
};

/// Returns what a step takes with these buckets, by the recurrence of closed_form_step():
///
///   end(b) = max(ready(last place of b), end(b-1)) + all_reduce(b)
///   step   = max(floor, max over b of (end(b) + tail(first place of b)))
///
/// None where an all-reduce has no time. It is what closed_form_step() gives, to the nanosecond,
/// while the host spends nothing on a bucket and all copies are of single gradients: `ready` and
/// `tail` hold the slowest rank's times.
[[nodiscard]] std::optional<Duration> partition_time(const GradientSchedule& schedule,
                                                     const std::vector<std::size_t>& ends,
                                                     const BucketTime& all_reduce);

/// Returns the best of all 2^(n-1) partitions of n places into consecutive buckets: the shortest
/// step, and of those that reach it one with the fewest buckets. None where all need an all-reduce
/// without a time.
///
/// Whether a step of at most T is possible needs no more than the earliest end of the all-reduces
/// of each prefix, since a bucket from place i may end at T - tail(i) at the latest, whatever came
/// before. So T is bisected, in n^2/2 additions each time.
///
/// Throws std::invalid_argument: the lists are empty or of different lengths.
[[nodiscard]] std::optional<Partition> best_partition(const GradientSchedule& schedule,
                                                      const BucketTime& all_reduce);

}  // namespace stepsim
