#include "sim/batching/packing_stream.h"

#include <algorithm>
#include <set>

#include <fmt/core.h>

#include "costmodel/input_error.h"

namespace stepsim {
namespace {

std::int64_t length_of(std::span<const std::int64_t> lengths, std::int64_t sample) {
  return lengths[static_cast<std::size_t>(sample)];
}

/// Documents to choose from, by length and then by arrival.
class Buffer {
 public:
  Buffer(std::span<const std::int64_t> order,
         std::span<const std::int64_t> lengths,
         const BestFitCrop& options)
      : order_(order), lengths_(lengths), options_(options) {}

  void refill() {
    while (static_cast<std::int64_t>(waiting_.size()) < options_.buffer && next_ < order_.size()) {
      const auto end =
          std::min(order_.size(), next_ + static_cast<std::size_t>(options_.refill_group));
      for (; next_ < end; ++next_) {
        waiting_.emplace(length_of(lengths_, order_[next_]), next_);
      }
    }
  }

  [[nodiscard]] bool empty() const { return waiting_.empty(); }

  /// The longest document of at most `room`, else the shortest one cropped to it.
  [[nodiscard]] Piece take(std::int64_t room) {
    auto found = waiting_.begin();
    if (const auto above = waiting_.upper_bound({room, order_.size()}); above != waiting_.begin()) {
      found = waiting_.lower_bound({std::prev(above)->first, 0});
    }
    const Piece piece = {order_[found->second], std::min(found->first, room)};
    waiting_.erase(found);
    return piece;
  }

 private:
  std::span<const std::int64_t> order_;
  std::span<const std::int64_t> lengths_;
  const BestFitCrop& options_;
  std::size_t next_ = 0;
  std::set<std::pair<std::int64_t, std::size_t>> waiting_;
};

}  // namespace

PiecePacks pack_best_fit_crop(std::span<const std::int64_t> order,
                              std::span<const std::int64_t> lengths,
                              const BestFitCrop& options) {
  PiecePacks rows;
  Buffer buffer(order, lengths, options);
  while (true) {
    std::vector<Piece> row;
    for (std::int64_t room = options.capacity; room > 0; room -= row.back().length) {
      buffer.refill();
      if (buffer.empty()) {
        return rows;
      }
      row.push_back(buffer.take(room));
    }
    rows.push_back(std::move(row));
  }
}

StreamStep take_from_stream(std::span<const std::int64_t> order,
                            std::span<const std::int64_t> lengths,
                            std::size_t first,
                            int ranks,
                            std::int64_t tokens,
                            std::int64_t max_length) {
  StreamStep step;
  step.next = first;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Piece>& own = step.ranks.emplace_back();
    std::int64_t room = tokens + 1;
    while (room > 0) {
      if (step.next == order.size()) {
        throw InputError(fmt::format(
            "the documents end {} tokens before rank {} has its {}", room, rank, tokens + 1));
      }
      const std::int64_t sample = order[step.next++];
      own.push_back({sample, std::min({length_of(lengths, sample), max_length, room})});
      room -= own.back().length;
    }
  }
  return step;
}

PiecePacks BinCollator::step(std::span<const std::int64_t> samples,
                             std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> order(samples.begin(), samples.end());
  std::stable_sort(order.begin(), order.end(), [lengths](std::int64_t a, std::int64_t b) {
    return length_of(lengths, a) > length_of(lengths, b);
  });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Piece piece = {order[i], std::min(capacity_, length_of(lengths, order[i]))};
    const auto missing = bins_ - static_cast<std::int64_t>(open_.size());
    const bool all_needed = static_cast<std::int64_t>(order.size() - i) <= missing;
    const auto fits = [&](const std::vector<Piece>& bin) {
      return !all_needed && tokens_of(bin) + piece.length <= capacity_;
    };
    const auto found = std::find_if(open_.begin(), open_.end(), fits);
    if (found == open_.end()) {
      open_.push_back({piece});
    } else {
      found->push_back(piece);
      std::rotate(found, found + 1, open_.end());
    }
  }
  std::stable_sort(open_.begin(), open_.end(), [](const auto& a, const auto& b) {
    return tokens_of(a) > tokens_of(b);
  });
  const auto used =
      open_.begin() + std::min<std::ptrdiff_t>(bins_, static_cast<std::ptrdiff_t>(open_.size()));
  PiecePacks rows(open_.begin(), used);
  (void)open_.erase(open_.begin(), used);
  return rows;
}

std::int64_t tokens_of(std::span<const Piece> pieces) {
  std::int64_t tokens = 0;
  for (const Piece& piece : pieces) {
    tokens += piece.length;
  }
  return tokens;
}

}  // namespace stepsim
