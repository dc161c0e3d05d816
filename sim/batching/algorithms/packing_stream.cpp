#include "sim/batching/algorithms/packing_stream.h"

#include <algorithm>
#include <set>

#include "costmodel/base/mapped.h"
#include "sim/batching/algorithms/samples.h"

namespace stepsim {
namespace {

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
    const Piece piece = {order_[found->second], 0, std::min(found->first, room)};
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

std::optional<StreamStep> take_from_stream(std::span<const std::int64_t> order,
                                           std::span<const std::int64_t> lengths,
                                           std::size_t first,
                                           int ranks,
                                           std::int64_t tokens,
                                           std::int64_t max_length) {
  StreamStep step;
  step.next = first;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Piece>& own = step.ranks.emplace_back();
    for (std::int64_t room = tokens + 1; room > 0; room -= own.back().length) {
      if (step.next == order.size()) {
        return std::nullopt;
      }
      const std::int64_t sample = order[step.next++];
      own.push_back({sample, 0, std::min({length_of(lengths, sample), max_length, room})});
    }
  }
  return step;
}

void BinCollator::place(const Piece& piece, bool alone) {
  const auto fits = [&](const Bin& bin) {
    return !alone && bin.tokens + piece.length <= capacity_;
  };
  const auto found = std::ranges::find_if(open_, fits);
  if (found == open_.end()) {
    open_.push_back({piece.length, {piece}});
  } else {
    found->tokens += piece.length;
    found->pieces.push_back(piece);
    std::rotate(found, found + 1, open_.end());
  }
}

PiecePacks BinCollator::step(std::span<const std::int64_t> samples,
                             std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> order(samples.begin(), samples.end());
  sort_descending(order, lengths);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto missing = bins_ - std::ssize(open_);
    place({order[i], 0, std::min(capacity_, length_of(lengths, order[i]))},
          std::ssize(order) - static_cast<std::ptrdiff_t>(i) <= missing);
  }
  std::ranges::stable_sort(open_, std::greater<>(), &Bin::tokens);
  const auto used = open_.begin() + std::min<std::ptrdiff_t>(bins_, std::ssize(open_));
  PiecePacks rows;
  for (auto bin = open_.begin(); bin != used; ++bin) {
    rows.push_back(std::move(bin->pieces));
  }
  (void)open_.erase(open_.begin(), used);
  if (most_leftover_ && std::ssize(open_) > *most_leftover_) {
    open_.resize(static_cast<std::size_t>(*most_leftover_));
  }
  return rows;
}

PiecePacks BinCollator::leftover() const {
  return mapped(open_, &Bin::pieces);
}

StreamedRows stream_rows(std::span<const std::int64_t> order,
                         std::span<const std::int64_t> lengths,
                         int ranks,
                         std::int64_t token_budget) {
  struct Row {
    std::vector<std::int64_t> samples;
    std::int64_t tokens = 0;
    std::int64_t squares = 0;
  };
  StreamedRows result;
  std::vector<Row> rows(static_cast<std::size_t>(ranks));
  const auto samples_of = [&rows] {
    return mapped(rows, [](Row& row) { return std::move(row.samples); });
  };
  for (const std::int64_t sample : order) {
    const std::int64_t length = length_of(lengths, sample);
    if (length > token_budget) {
      result.dropped.push_back(sample);
      continue;
    }
    Row* best = nullptr;
    for (Row& row : rows) {
      if (row.tokens + length <= token_budget && (best == nullptr || row.squares < best->squares)) {
        best = &row;
      }
    }
    if (best == nullptr) {
      result.steps.push_back(samples_of());
      rows.assign(rows.size(), Row());
      best = &rows.front();
    }
    best->samples.push_back(sample);
    best->tokens += length;
    best->squares += length * length;
  }
  result.unfinished = samples_of();
  return result;
}

std::int64_t tokens_of(std::span<const Piece> pieces) {
  return sum_of(pieces, &Piece::length);
}

}  // namespace stepsim
