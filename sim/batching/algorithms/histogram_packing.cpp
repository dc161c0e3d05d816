#include "sim/batching/algorithms/histogram_packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

/// Packs that are still open, by their free space, and finished ones.
class Packing {
 public:
  Packing(std::int64_t capacity, std::int64_t max_sequences)
      : capacity_(capacity),
        max_sequences_(max_sequences),
        open_(static_cast<std::size_t>(capacity) + 1) {}

  [[nodiscard]] bool has_open(std::int64_t room) const {
    return !open_[static_cast<std::size_t>(room)].empty();
  }

  /// Up to `left` sequences into the packs that were opened or changed last among those of `room`
  /// free tokens, at most `repeat` of them a pack. Returns how many.
  std::int64_t add_to_open(std::int64_t room,
                           std::int64_t length,
                           std::int64_t repeat,
                           std::int64_t left) {
    auto& packs = open_[static_cast<std::size_t>(room)];
    PackStrategy pack = std::move(packs.back());
    packs.pop_back();
    repeat =
        std::min({repeat, max_sequences_ - static_cast<std::int64_t>(pack.lengths.size()), left});
    const std::int64_t count = std::min(pack.count, left / repeat);
    if (pack.count > count) {
      packs.push_back({pack.count - count, pack.lengths});
    }
    pack.count = count;
    store(std::move(pack), room, length, repeat);
    return count * repeat;
  }

  /// Up to `left` sequences into new packs of `repeat` each. Returns how many.
  std::int64_t open_new(std::int64_t length, std::int64_t repeat, std::int64_t left) {
    repeat = std::min({repeat, max_sequences_, left});
    const std::int64_t count = left / repeat;
    store({count, {}}, capacity_, length, repeat);
    return count * repeat;
  }

  [[nodiscard]] HistogramPacking finish() && {
    for (auto& packs : open_) {
      for (auto& pack : packs) {
        close(std::move(pack));
      }
    }
    HistogramPacking result;
    for (auto& [lengths, count] : closed_) {
      result.strategies.push_back({count, lengths});
    }
    return result;
  }

 private:
  void store(PackStrategy pack, std::int64_t room, std::int64_t length, std::int64_t repeat) {
    pack.lengths.insert(pack.lengths.end(), static_cast<std::size_t>(repeat), length);
    room -= repeat * length;
    if (room == 0 || static_cast<std::int64_t>(pack.lengths.size()) == max_sequences_) {
      close(std::move(pack));
    } else {
      open_[static_cast<std::size_t>(room)].push_back(std::move(pack));
    }
  }

  void close(PackStrategy pack) {
    std::ranges::reverse(pack.lengths);
    closed_[std::move(pack.lengths)] += pack.count;
  }

  std::int64_t capacity_;
  std::int64_t max_sequences_;
  std::vector<std::vector<PackStrategy>> open_;  ///< [free tokens], lengths descending
  std::map<std::vector<std::int64_t>, std::int64_t> closed_;
};

}  // namespace

std::int64_t HistogramPacking::packs() const {
  return sum_of(strategies, [](const auto& strategy) { return strategy.count; });
}

std::int64_t HistogramPacking::sequences() const {
  return sum_of(strategies, [](const auto& strategy) {
    return strategy.count * static_cast<std::int64_t>(strategy.lengths.size());
  });
}

std::int64_t HistogramPacking::tokens() const {
  std::int64_t all = 0;
  for (const auto& [count, lengths] : strategies) {
    all += count * std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  }
  return all;
}

HistogramPacking pack_longest_first(std::span<const std::int64_t> counts,
                                    std::int64_t max_sequences) {
  const auto capacity = static_cast<std::int64_t>(counts.size());
  Packing packing(capacity, max_sequences);
  for (std::int64_t length = capacity; length > 0; --length) {
    for (auto left = counts[static_cast<std::size_t>(length) - 1]; left > 0;) {
      std::int64_t room = length;
      while (room <= capacity && !packing.has_open(room)) {
        ++room;
      }
      left -= room <= capacity ? packing.add_to_open(room, length, room / length, left)
                               : packing.open_new(length, capacity / length, left);
    }
  }
  return std::move(packing).finish();
}

HistogramPacking pack_shortest_first(std::span<const std::int64_t> counts,
                                     std::int64_t max_sequences) {
  const auto capacity = static_cast<std::int64_t>(counts.size());
  Packing packing(capacity, max_sequences);
  for (std::int64_t length = capacity; length > 0; --length) {
    for (auto left = counts[static_cast<std::size_t>(length) - 1]; left > 0;) {
      std::int64_t room = capacity;
      while (room >= length && !packing.has_open(room)) {
        --room;
      }
      left -= room >= length ? packing.add_to_open(room, length, 1, left)
                             : packing.open_new(length, 1, left);
    }
  }
  return std::move(packing).finish();
}

}  // namespace stepsim
