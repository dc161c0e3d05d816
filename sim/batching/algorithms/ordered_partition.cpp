#include "sim/batching/algorithms/ordered_partition.h"

#include <algorithm>
#include <limits>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"

namespace stepsim {
namespace {

constexpr std::int64_t kImpossible = std::numeric_limits<std::int64_t>::max();

/// The cuts of one dynamic programme.
struct Cuts {
  std::int64_t sum = kImpossible;
  std::int64_t highest = 0;
  std::vector<std::size_t> ends;  ///< Ascending.
};

class Cutter {
 public:
  Cutter(std::vector<std::int64_t> ascending, const OrderedPartition& options)
      : lengths_(std::move(ascending)), options_(options) {}

  /// Cost of the lengths begin .. end - 1 together.
  [[nodiscard]] std::int64_t cost(std::size_t begin, std::size_t end) const {
    return options_.overhead + static_cast<std::int64_t>(end - begin) * lengths_[end - 1];
  }

  /// The cuts of least sum whose parts cost `limit` at most.
  [[nodiscard]] Cuts cut(std::int64_t limit) const {
    std::vector<std::int64_t> best(lengths_.size() + 1, kImpossible);
    std::vector<std::size_t> from(lengths_.size() + 1);
    best[0] = 0;
    for (std::size_t end = 1; end <= lengths_.size(); ++end) {
      // A longer part ending here only costs more.
      for (std::size_t begin = end; begin-- > 0 && allowed(begin, end, limit);) {
        if (best[begin] != kImpossible && best[begin] + cost(begin, end) < best[end]) {
          best[end] = best[begin] + cost(begin, end);
          from[end] = begin;
        }
      }
    }
    Cuts cuts;
    cuts.sum = best.back();
    for (std::size_t end = lengths_.size(); cuts.sum != kImpossible && end > 0; end = from[end]) {
      cuts.ends.push_back(end);
      cuts.highest = std::max(cuts.highest, cost(from[end], end));
    }
    std::ranges::reverse(cuts.ends);
    return cuts;
  }

  /// Limits to try, ascending; the last one allows every part.
  [[nodiscard]] std::vector<std::int64_t> candidates() const {
    const std::size_t count = lengths_.size();
    if (options_.stages == 1) {
      return {kImpossible};
    }
    std::vector<std::int64_t> all;
    for (std::size_t end = 1; end <= count; ++end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        all.push_back(cost(begin, end));
      }
    }
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    constexpr std::size_t kMax = 64;
    std::vector<std::int64_t> tried;
    const std::size_t used = std::min(kMax, all.size());
    for (std::size_t i = 1; i <= used; ++i) {
      tried.push_back(all[i * all.size() / used - 1]);
    }
    return tried;
  }

 private:
  [[nodiscard]] bool allowed(std::size_t begin, std::size_t end, std::int64_t limit) const {
    const bool alone = begin + 1 == end;
    const bool fits =
        !options_.max_tokens || cost(begin, end) - options_.overhead <= *options_.max_tokens;
    return cost(begin, end) <= limit && (alone || fits);
  }

  std::vector<std::int64_t> lengths_;
  const OrderedPartition& options_;
};

}  // namespace

Parts ordered_partition(std::span<const std::int64_t> lengths, const OrderedPartition& options) {
  if (lengths.empty() || options.overhead < 0 || options.stages < 1 || options.replicas < 1) {
    throw InputError("ordered partition of {} samples: overhead {}, {} stages, {} replicas",
                     lengths.size(),
                     options.overhead,
                     options.stages,
                     options.replicas);
  }
  SampleIds order = all_samples(lengths.size());
  sort_by_length(order, lengths);
  const Cutter cutter(lengths_of(lengths, order), options);
  Cuts best;
  std::int64_t least = kImpossible;
  for (const std::int64_t limit : cutter.candidates()) {
    Cuts cuts = cutter.cut(limit);
    // The time, times the replicas.
    const std::int64_t time =
        cuts.sum == kImpossible ? kImpossible
                                : (options.stages - 1) * options.replicas * cuts.highest + cuts.sum;
    if (time < least) {
      least = time;
      best = std::move(cuts);
    }
  }
  Parts parts;
  std::size_t begin = 0;
  for (const std::size_t end : best.ends) {
    parts.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin),
                       order.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return parts;
}

}  // namespace stepsim
