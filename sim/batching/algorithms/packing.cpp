#include "sim/batching/algorithms/packing.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "sim/batching/algorithms/samples.h"

namespace stepsim {
namespace {

/// Free space of the packs so far, in a tree of maxima: the first pack with room in O(log packs).
class Rooms {
 public:
  /// The first pack with at least `needed` room; none when there is no such pack.
  [[nodiscard]] std::optional<std::size_t> first(std::int64_t needed) const {
    if (packs_ == 0 || most_[1] < needed) {
      return std::nullopt;
    }
    std::size_t node = 1;
    while (node < leaves_) {
      node = 2 * node + (most_[2 * node] < needed ? 1 : 0);
    }
    return node - leaves_;
  }

  void append(std::int64_t room) {
    if (packs_ == leaves_) {
      grow();
    }
    set(packs_++, room);
  }

  [[nodiscard]] std::int64_t room(std::size_t pack) const { return most_[leaves_ + pack]; }

  void set(std::size_t pack, std::int64_t room) {
    std::size_t node = leaves_ + pack;
    most_[node] = room;
    while (node > 1) {
      node /= 2;
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    }
  }

 private:
  static constexpr std::int64_t kNoPack = -1;

  void grow() {
    const std::vector<std::int64_t> old(most_.begin() + static_cast<std::ptrdiff_t>(leaves_),
                                        most_.end());
    leaves_ *= 2;
    most_.assign(2 * leaves_, kNoPack);
    for (std::size_t pack = 0; pack < old.size(); ++pack) {
      set(pack, old[pack]);
    }
  }

  std::size_t leaves_ = 1;
  std::size_t packs_ = 0;
  std::vector<std::int64_t> most_ = {kNoPack, kNoPack};  ///< [node] 1 is the root.
};

void first_fit(std::span<const std::int64_t> order,
               std::span<const std::int64_t> lengths,
               const FirstFit& options,
               Packs& packs) {
  Rooms rooms;
  const std::size_t begin = packs.size();
  for (const std::int64_t sample : order) {
    const std::int64_t length = length_of(lengths, sample);
    std::optional<std::size_t> pack = rooms.first(length);
    if (!pack) {
      pack = packs.size() - begin;
      packs.emplace_back();
      rooms.append(std::max(options.capacity, length));
    }
    auto& samples = packs[begin + *pack];
    samples.push_back(sample);
    const bool full =
        options.max_samples && static_cast<std::int64_t>(samples.size()) >= *options.max_samples;
    rooms.set(*pack, full ? -1 : rooms.room(*pack) - length);
  }
}

std::vector<Piece> pieces_of(std::span<const std::int64_t> lengths,
                             std::int64_t capacity,
                             bool split) {
  std::vector<Piece> full;
  std::vector<Piece> rest;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto sample = static_cast<std::int64_t>(i);
    std::int64_t offset = 0;
    for (; split && lengths[i] - offset > capacity; offset += capacity) {
      full.push_back({sample, offset, capacity});
    }
    if (lengths[i] > offset) {
      rest.push_back({sample, offset, std::min(lengths[i] - offset, capacity)});
    }
  }
  full.insert(full.end(), rest.begin(), rest.end());
  std::ranges::stable_sort(full, std::greater<>(), &Piece::length);
  return full;
}

}  // namespace

PiecePacks pack_best_fit_decreasing(std::span<const std::int64_t> lengths,
                                    std::int64_t capacity,
                                    bool split) {
  PiecePacks packs;
  std::map<std::int64_t, std::deque<std::size_t>> by_room;
  for (const Piece& piece : pieces_of(lengths, capacity, split)) {
    std::size_t pack = packs.size();
    std::int64_t room = capacity;
    if (const auto found = by_room.lower_bound(piece.length); found != by_room.end()) {
      room = found->first;
      pack = found->second.front();
      found->second.pop_front();
      if (found->second.empty()) {
        by_room.erase(found);
      }
    } else {
      packs.emplace_back();
    }
    packs[pack].push_back(piece);
    if (room > piece.length) {
      by_room[room - piece.length].push_back(pack);
    }
  }
  return packs;
}

PiecePacks pack_wrapped(std::span<const std::int64_t> order,
                        std::span<const std::int64_t> lengths,
                        std::int64_t capacity) {
  PiecePacks packs;
  std::int64_t room = 0;
  for (const std::int64_t sample : order) {
    for (std::int64_t offset = 0; offset < length_of(lengths, sample);) {
      if (room == 0) {
        packs.emplace_back();
        room = capacity;
      }
      const std::int64_t length = std::min(length_of(lengths, sample) - offset, room);
      packs.back().push_back({sample, offset, length});
      offset += length;
      room -= length;
    }
  }
  return packs;
}

Packs pack_first_fit(std::span<const std::int64_t> order,
                     std::span<const std::int64_t> lengths,
                     const FirstFit& options) {
  const auto group = static_cast<std::size_t>(
      options.group.value_or(std::max<std::int64_t>(1, static_cast<std::int64_t>(order.size()))));
  Packs packs;
  for (std::size_t begin = 0; begin < order.size(); begin += group) {
    first_fit(order.subspan(begin, std::min(group, order.size() - begin)), lengths, options, packs);
  }
  return packs;
}

Packs pack_next_fit(std::span<const std::int64_t> order,
                    std::span<const std::int64_t> lengths,
                    std::int64_t capacity) {
  Packs packs;
  std::int64_t room = 0;
  for (const std::int64_t sample : order) {
    const std::int64_t length = length_of(lengths, sample);
    if (packs.empty() || length > room) {
      packs.emplace_back();
      room = capacity;
    }
    packs.back().push_back(sample);
    room -= length;
  }
  return packs;
}

Packs pack_longalign(std::span<const std::int64_t> order,
                     std::span<const std::int64_t> lengths,
                     std::int64_t capacity) {
  Packs packs;
  std::vector<std::int64_t> current;
  std::int64_t used = 0;
  for (const std::int64_t sample : order) {
    const std::int64_t length = length_of(lengths, sample);
    if (length >= capacity) {
      continue;
    }
    if (used + length >= capacity) {
      packs.push_back(std::move(current));
      current.clear();
      used = 0;
    }
    current.push_back(sample);
    used += length;
  }
  return packs;
}

Packs pack_greedy_knapsack(std::span<const std::int64_t> lengths, std::int64_t capacity) {
  // Length, then the order in which equal ones are taken: first come, first served.
  std::set<std::pair<std::int64_t, std::int64_t>> waiting;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] <= capacity) {
      waiting.emplace(lengths[i], -static_cast<std::int64_t>(i));
    }
  }
  Packs packs;
  while (!waiting.empty()) {
    packs.emplace_back();
    std::int64_t room = capacity;
    for (auto next = waiting.upper_bound({room, 1}); next != waiting.begin();
         next = waiting.upper_bound({room, 1})) {
      --next;
      packs.back().push_back(-next->second);
      room -= next->first;
      waiting.erase(next);
    }
  }
  return packs;
}

}  // namespace stepsim
