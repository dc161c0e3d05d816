// The best buckets of a step: every partition is tried, by the recurrence and by the event engine.
#include "sim/parallel/ddp/best_partition.h"

#include <algorithm>
#include <stdexcept>

#include <doctest/doctest.h>

#include "sim/parallel/closed_form.h"
#include "tests/sim/parallel/ddp/random_step.h"
#include "tests/sim/parallel/ddp/step_program.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

/// A random step with a bucket for each gradient, and what all-reduces of several of them take.
struct GradientStep {
  explicit GradientStep(std::uint64_t seed) : random(seed), fine(random.next()) {
    clocks = random.clocks();
    clocks.resize(fine.ranks.size());
    largest = random.below(2) == 0 ? 9 : 60;
    bytes = {0};
    for (std::size_t i = 0; i < fine.all_reduce.size(); ++i) {
      bytes.push_back(bytes.back() + 1 + static_cast<std::int64_t>(random.below(20)));
    }
    latency = static_cast<std::int64_t>(random.below(largest));
    per_byte = static_cast<std::int64_t>(random.below(4));
    limit = random.below(8) == 0 ? 18 : 1'000'000;
  }

  /// A latency and a rate; nothing is known of all-reduces of more than `limit` bytes.
  [[nodiscard]] std::optional<Duration> all_reduce(std::size_t first, std::size_t end) const {
    const std::int64_t size = bytes[end] - bytes[first];
    return size > limit ? std::nullopt : std::optional(Duration(latency + per_byte * size));
  }

  /// What the recurrence's step with free communication tells.
  [[nodiscard]] GradientSchedule schedule() const {
    StepInput free = fine;
    free.all_reduce.assign(fine.all_reduce.size(), Duration(0));
    const StepTimeline step = closed_form_step(free, clocks);
    GradientSchedule result;
    const std::size_t places = fine.all_reduce.size();
    result.ready.assign(places, Duration(0));
    result.tail.assign(places, Duration(0));
    for (std::size_t r = 0; r < fine.ranks.size(); ++r) {
      Duration tail = fine.ranks[r].optimizer.device;
      for (std::size_t i = places; i-- > 0;) {
        tail += fine.ranks[r].copy_out[i].device;
        result.tail[i] = std::max(result.tail[i], tail);
        result.ready[i] = std::max(result.ready[i], step.ranks[r].ready_at[i].time_since_epoch());
      }
      result.floor = std::max(result.floor, step.ranks[r].end.time_since_epoch());
    }
    return result;
  }

  /// The step with these buckets; none where an all-reduce has no time.
  [[nodiscard]] std::optional<StepInput> with(const std::vector<std::size_t>& ends) const {
    StepInput step = fine;
    step.all_reduce.clear();
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      const auto time = all_reduce(first, end);
      if (!time) {
        return std::nullopt;
      }
      step.all_reduce.push_back(*time);
      first = end;
    }
    for (std::size_t r = 0; r < fine.ranks.size(); ++r) {
      const RankStep& all = fine.ranks[r];
      step.ranks[r].backward.clear();
      step.ranks[r].copy_out.clear();
      first = 0;
      for (const std::size_t end : ends) {
        Span backward;
        Span copies;
        for (; first < end; ++first) {
          backward = then(backward, all.backward[first]);
          copies = then(copies, all.copy_out[first]);
        }
        step.ranks[r].backward.push_back(backward);
        step.ranks[r].copy_out.push_back(copies);
      }
      step.ranks[r].backward.push_back(all.backward.back());
    }
    return step;
  }

  RandomSteps random;
  StepInput fine;
  std::vector<RankClock> clocks;
  std::uint64_t largest = 0;
  std::vector<std::int64_t> bytes;  ///< [place] of all places before it.
  std::int64_t latency = 0;
  std::int64_t per_byte = 0;
  std::int64_t limit = 0;
};

/// The ends of the buckets: the last place, and those whose bit is set.
std::vector<std::size_t> ends_of(std::uint64_t bits, std::size_t places) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i < places; ++i) {
    if ((bits >> (i - 1) & 1U) != 0) {
      ends.push_back(i);
    }
  }
  ends.push_back(places);
  return ends;
}

Duration end_of_step(const StepTimeline& step) {
  Duration end{0};
  for (const RankTimeline& rank : step.ranks) {
    end = std::max(end, rank.end.time_since_epoch());
  }
  return end;
}

}  // namespace

TEST_CASE("the best partition is the best of all, and times are those of recurrence and engine") {
  int models = 0;
  int without = 0;
  for (std::uint64_t seed = 0; models < 1000; ++seed) {
    CAPTURE(seed);
    const GradientStep step(seed);
    const std::size_t places = step.fine.all_reduce.size();
    if (places == 0) {
      continue;
    }
    ++models;
    const GradientSchedule schedule = step.schedule();
    const BucketTime all_reduce = [&](std::size_t first, std::size_t end) {
      return step.all_reduce(first, end);
    };
    std::optional<Partition> best;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << (places - 1); ++bits) {
      const std::vector<std::size_t> ends = ends_of(bits, places);
      const auto played = step.with(ends);
      REQUIRE(played.has_value() == partition_time(schedule, ends, all_reduce).has_value());
      if (!played) {
        continue;
      }
      const Duration time = end_of_step(closed_form_step(*played, step.clocks));
      REQUIRE(*partition_time(schedule, ends, all_reduce) == time);
      const bool fewer = best && time == best->step && ends.size() < best->ends.size();
      if (!best || time < best->step || fewer) {
        best = {ends, time};
      }
    }
    const auto found = best_partition(schedule, all_reduce);
    REQUIRE(found.has_value() == best.has_value());
    without += best ? 0 : 1;
    if (!best) {
      continue;
    }
    REQUIRE(found->step == best->step);
    REQUIRE(found->ends.size() == best->ends.size());
    REQUIRE(*partition_time(schedule, found->ends, all_reduce) == best->step);
    Engine engine({}, step.clocks);
    REQUIRE(end_of_step(play_step(*step.with(found->ends), engine)) == best->step);
  }
  CHECK(without > 0);
}

TEST_CASE("a small bucket last hides what one cap cannot") {
  // Four gradients of 10 bytes, ready at 10, 20, 30, 40; an all-reduce of n bytes takes 1 + n, and
  // nothing comes after it. Buckets of one or of two gradients, or all in one:
  //   one:  start 10 21 32 43 -> 54     two:  start 20 41 -> 62     four: start 40 -> 81
  // The best begins with one and ends with one: 10 -> 21, [1 2] 30 -> 51, 51 -> 62; or by single
  // gradients 54, which nothing beats: 40 ms of all-reduces and four latencies behind 10.
  const GradientSchedule schedule{{Duration(10), Duration(20), Duration(30), Duration(40)},
                                  std::vector<Duration>(4, Duration(0)),
                                  Duration(40)};
  const BucketTime short_latency = [](std::size_t first, std::size_t end) {
    return Duration(1 + static_cast<std::int64_t>(10 * (end - first)));
  };
  CHECK(best_partition(schedule, short_latency)->ends == std::vector<std::size_t>{1, 2, 3, 4});
  CHECK(best_partition(schedule, short_latency)->step == Duration(54));
  // With half the transfer and a latency of 8: ones 10 23 36 49 -> 62; twos 20, 40 -> 58; [0 1 2]
  // [3] 30 -> 53 -> 66; [0] [1 2] [3] 10, 30 -> 48 -> 61; [0 1] [2] [3]: 20 -> 38 -> 51 -> 64.
  const BucketTime long_latency = [](std::size_t first, std::size_t end) {
    return Duration(8 + static_cast<std::int64_t>(5 * (end - first)));
  };
  CHECK(best_partition(schedule, long_latency)->ends == std::vector<std::size_t>{2, 4});
  CHECK(best_partition(schedule, long_latency)->step == Duration(58));
  // A copy of 9 out of each gradient makes the end of the first bucket matter: 58 + 18 = 76.
  GradientSchedule copied = schedule;
  copied.tail = {Duration(36), Duration(27), Duration(18), Duration(9)};
  CHECK(*partition_time(copied, {2, 4}, long_latency) == Duration(76));
  CHECK(best_partition(copied, long_latency)->step <= Duration(76));
}

TEST_CASE("of equally short steps the one with the fewest buckets is taken") {
  // Free communication: any partition takes the floor.
  const GradientSchedule schedule{
      {Duration(1), Duration(2), Duration(3)}, std::vector<Duration>(3, Duration(5)), Duration(8)};
  const auto free = [](std::size_t, std::size_t) { return std::optional(Duration(0)); };
  CHECK(best_partition(schedule, free)->ends == std::vector<std::size_t>{3});
  CHECK(best_partition(schedule, free)->step == Duration(8));
  CHECK_THROWS_AS((void)best_partition({}, free), std::invalid_argument);
}
