#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "sim/parallel/step.h"

namespace stepsim::test {

/// Small random steps, with zero durations and ties frequent. The draws are std::mt19937_64 modulo:
/// the same scenarios everywhere.
class RandomSteps {
 public:
  explicit RandomSteps(std::uint64_t seed) : generator_(seed) {
    ranks_ = 1 + below(9);
    buckets_ = below(13);
    host_is_device_ = below(3) == 0;
    // Host-bound when launches cost more than kernels; a range of 1 makes every duration equal.
    host_range_ = host_is_device_ ? 0 : pick({0, 1, 3, 20, 200});
    device_range_ = pick({0, 1, 3, 20, 200});
    reduce_range_ = pick({0, 1, 4, 50, 500});
  }

  std::uint64_t below(std::uint64_t n) { return generator_() % n; }

  StepInput next() {
    StepInput input;
    input.host_is_device = host_is_device_;
    for (std::uint64_t r = 0; r < ranks_; ++r) {
      input.ranks.push_back(rank());
    }
    for (std::uint64_t b = 0; b < buckets_; ++b) {
      input.all_reduce.push_back(duration(reduce_range_));
    }
    return input;
  }

  /// Host ahead of the device, level with it, and behind it.
  std::vector<RankClock> clocks() {
    std::vector<RankClock> result;
    for (std::uint64_t r = 0; r < ranks_; ++r) {
      result.push_back({SimTime(duration(30)), SimTime(duration(30))});
    }
    return result;
  }

  /// A chain of ops, nothing, or (rarely) a span that no chain of ops has.
  Span span() {
    if (below(16) == 0) {
      return {duration(host_range_), duration(device_range_), duration(host_range_)};
    }
    Span result;
    for (std::uint64_t op = below(4); op > 0; --op) {
      result = then(result, op_span(duration(host_range_), duration(device_range_)));
    }
    return result;
  }

  /// 0..largest, zero half of the time.
  Duration duration(std::uint64_t largest) {
    return Duration(static_cast<std::int64_t>(below(2) == 0 ? 0 : below(largest + 1)));
  }

 private:
  std::uint64_t pick(const std::vector<std::uint64_t>& values) {
    return values[below(values.size())];
  }

  RankStep rank() {
    RankStep work;
    work.data = duration(device_range_);
    work.forward = span();
    for (std::uint64_t b = 0; b < buckets_; ++b) {
      work.backward.push_back(span());
      work.copy_out.push_back(below(2) == 0 ? Span{} : span());
    }
    work.backward.push_back(below(4) == 0 ? span() : Span{});
    work.optimizer = span();
    return work;
  }

  std::mt19937_64 generator_;
  std::uint64_t ranks_ = 0;
  std::uint64_t buckets_ = 0;
  bool host_is_device_ = false;
  std::uint64_t host_range_ = 0;
  std::uint64_t device_range_ = 0;
  std::uint64_t reduce_range_ = 0;
};

/// Every duration of a step, to change one of them.
inline std::vector<Duration*> durations(StepInput& input) {
  std::vector<Duration*> result;
  const auto add = [&](Span& span) {
    result.push_back(&span.host);
    result.push_back(&span.device);
    result.push_back(&span.critical);
  };
  for (RankStep& rank : input.ranks) {
    result.push_back(&rank.data);
    add(rank.forward);
    std::for_each(rank.backward.begin(), rank.backward.end(), add);
    std::for_each(rank.copy_out.begin(), rank.copy_out.end(), add);
    add(rank.optimizer);
  }
  for (Duration& reduce : input.all_reduce) {
    result.push_back(&reduce);
  }
  return result;
}

}  // namespace stepsim::test
