#include "sim/parallel/ddp/best_partition.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace stepsim {

namespace {

constexpr Duration kNever = Duration::max();

/// The search for one step. `first` and `end` of a bucket are places.
class PartitionSearch {
 public:
  PartitionSearch(const GradientSchedule& schedule, const BucketTime& all_reduce)
      : schedule_(schedule), places_(schedule.ready.size()) {
    for (std::size_t first = 0; first < places_; ++first) {
      for (std::size_t end = first + 1; end <= places_; ++end) {
        times_.push_back(all_reduce(first, end).value_or(kNever));
      }
    }
  }

  [[nodiscard]] std::optional<Partition> best() const {
    const std::vector<std::size_t> whole = within(kNever);
    if (whole.empty()) {
      return std::nullopt;
    }
    Duration possible = step_of(whole);
    Duration impossible = schedule_.floor - Duration(1);
    while (possible - impossible > Duration(1)) {
      const Duration middle = impossible + (possible - impossible) / 2;
      const std::vector<std::size_t> ends = within(middle);
      if (ends.empty()) {
        impossible = middle;
      } else {
        possible = step_of(ends);
      }
    }
    return Partition{fewest(possible), possible};
  }

 private:
  [[nodiscard]] Duration time(std::size_t first, std::size_t end) const {
    // Row `first` begins behind the places_ + (places_ - 1) + … entries of the rows before it.
    return times_[first * (2 * places_ - first + 1) / 2 + end - first - 1];
  }

  /// The end of the all-reduce of a bucket behind others that end at `before`; kNever where it has
  /// no time or the step would then take longer than `limit`.
  [[nodiscard]] Duration end_of(std::size_t first,
                                std::size_t end,
                                Duration before,
                                Duration limit) const {
    const Duration taken = time(first, end);
    if (before == kNever || taken == kNever) {
      return kNever;
    }
    const Duration reduced = std::max(schedule_.ready[end - 1], before) + taken;
    return reduced > limit - schedule_.tail[first] ? kNever : reduced;
  }

  [[nodiscard]] Duration step_of(const std::vector<std::size_t>& ends) const {
    Duration step = schedule_.floor;
    Duration before{0};
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      before = end_of(first, end, before, kNever);
      step = std::max(step, before + schedule_.tail[first]);
      first = end;
    }
    return step;
  }

  /// Buckets with which the step takes at most `limit`; empty where there are none.
  [[nodiscard]] std::vector<std::size_t> within(Duration limit) const {
    std::vector<Duration> earliest(places_ + 1, kNever);
    std::vector<std::size_t> from(places_ + 1, 0);
    earliest[0] = Duration(0);
    for (std::size_t end = 1; end <= places_; ++end) {
      for (std::size_t first = 0; first < end; ++first) {
        const Duration reduced = end_of(first, end, earliest[first], limit);
        if (reduced < earliest[end]) {
          earliest[end] = reduced;
          from[end] = first;
        }
      }
    }
    std::vector<std::size_t> ends;
    for (std::size_t end = places_; earliest[places_] != kNever && end > 0; end = from[end]) {
      ends.push_back(end);
    }
    std::ranges::reverse(ends);
    return ends;
  }

  /// The fewest buckets with which the step takes at most `limit`, which is possible: the earliest
  /// ends with one bucket, with two, and so on.
  [[nodiscard]] std::vector<std::size_t> fewest(Duration limit) const {
    std::vector<Duration> earliest(places_ + 1, kNever);
    earliest[0] = Duration(0);
    std::vector<std::vector<std::size_t>> from;  // [buckets - 1][end]
    while (earliest[places_] == kNever) {
      std::vector<Duration> next(places_ + 1, kNever);
      from.emplace_back(places_ + 1, 0);
      for (std::size_t end = 1; end <= places_; ++end) {
        for (std::size_t first = 0; first < end; ++first) {
          const Duration reduced = end_of(first, end, earliest[first], limit);
          if (reduced < next[end]) {
            next[end] = reduced;
            from.back()[end] = first;
          }
        }
      }
      earliest = next;
    }
    std::vector<std::size_t> ends;
    std::size_t end = places_;
    for (auto with = from.rbegin(); with != from.rend(); ++with) {
      ends.push_back(end);
      end = (*with)[end];
    }
    std::ranges::reverse(ends);
    return ends;
  }

  const GradientSchedule& schedule_;
  std::size_t places_;
  std::vector<Duration> times_;  ///< [first][end - first - 1], without gaps; kNever: not known.
};

}  // namespace

std::optional<Duration> partition_time(const GradientSchedule& schedule,
                                       const std::vector<std::size_t>& ends,
                                       const BucketTime& all_reduce) {
  Duration step = schedule.floor;
  Duration reduced{0};
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    const std::optional<Duration> taken = all_reduce(first, end);
    if (!taken) {
      return std::nullopt;
    }
    reduced = std::max(schedule.ready[end - 1], reduced) + *taken;
    step = std::max(step, reduced + schedule.tail[first]);
    first = end;
  }
  return step;
}

std::optional<Partition> best_partition(const GradientSchedule& schedule,
                                        const BucketTime& all_reduce) {
  if (schedule.ready.empty() || schedule.ready.size() != schedule.tail.size()) {
    throw std::invalid_argument("best_partition: a step has as many tails as ready times");
  }
  return PartitionSearch(schedule, all_reduce).best();
}

}  // namespace stepsim
