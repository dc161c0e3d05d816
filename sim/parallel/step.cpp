#include "sim/parallel/step.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace stepsim {

namespace {

/// All bits of all durations of the spans: its sign says whether one is negative, without a branch
/// per duration (this check runs in every step of a sweep).
std::int64_t bits(std::span<const Span> spans) {
  std::int64_t all = 0;
  for (const Span& span : spans) {
    all |= span.host.count() | span.device.count() | span.critical.count();
  }
  return all;
}

bool any_negative(const RankStep& rank) {
  return (rank.data.count() | bits({&rank.forward, 1}) | bits(rank.backward) | bits(rank.copy_out) |
          bits({&rank.optimizer, 1})) < 0;
}

[[noreturn]] void fail(std::size_t rank, const std::string& message) {
  throw std::invalid_argument("step: rank " + std::to_string(rank) + ": " + message);
}

}  // namespace

void check(const StepInput& input) {
  if (input.ranks.empty()) {
    throw std::invalid_argument("step: no ranks");
  }
  const std::size_t buckets = input.all_reduce.size();
  for (std::size_t r = 0; r < input.ranks.size(); ++r) {
    const RankStep& rank = input.ranks[r];
    if (rank.backward.size() != buckets + 1) {
      fail(r,
           std::to_string(rank.backward.size()) + " backward spans for " + std::to_string(buckets) +
               " buckets; there must be one more than buckets");
    }
    if (rank.copy_out.size() != buckets) {
      fail(r,
           std::to_string(rank.copy_out.size()) + " copy-out spans for " + std::to_string(buckets) +
               " buckets");
    }
    if (any_negative(rank)) {
      fail(r, "a negative duration");
    }
  }
  if (std::ranges::any_of(input.all_reduce, [](Duration d) { return d < Duration::zero(); })) {
    throw std::invalid_argument("step: a negative all-reduce");
  }
}

void check(const StepInput& input, std::span<const RankClock> clocks) {
  check(input);
  if (clocks.size() != input.ranks.size()) {
    throw std::invalid_argument("step: " + std::to_string(clocks.size()) + " clocks for " +
                                std::to_string(input.ranks.size()) + " ranks");
  }
}

}  // namespace stepsim
