#include "sim/batching/algorithms/multipack.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/batching/algorithms/samples.h"

namespace stepsim {
namespace {

using Bins = std::vector<SampleIds>;

/// Loads of the bins as a binary heap whose root is the least; equal loads go to the left.
class LoadHeap {
 public:
  explicit LoadHeap(std::size_t bins) {
    for (std::size_t bin = 0; bin < bins; ++bin) {
      loads_.emplace_back(0, bin);
    }
  }

  [[nodiscard]] std::int64_t least() const { return loads_.front().first; }
  [[nodiscard]] std::size_t least_bin() const { return loads_.front().second; }

  void add_to_least(std::int64_t length) {
    loads_.front().first += length;
    std::size_t node = 0;
    for (std::size_t child = 1; child < loads_.size(); child = 2 * node + 1) {
      if (child + 1 < loads_.size() && loads_[child + 1].first < loads_[child].first) {
        ++child;
      }
      if (loads_[node].first <= loads_[child].first) {
        break;
      }
      std::swap(loads_[node], loads_[child]);
      node = child;
    }
  }

 private:
  std::vector<std::pair<std::int64_t, std::size_t>> loads_;
};

class Packer {
 public:
  Packer(std::span<const std::int64_t> lengths, const Multipack& options)
      : lengths_(lengths), options_(options) {}

  /// One bin a rank; nothing when the samples do not fit.
  [[nodiscard]] std::optional<Bins> pack(std::span<const std::int64_t> samples) const {
    SampleIds order(samples.begin(), samples.end());
    sort_descending(order, lengths_);
    return options_.method == Multipack::Method::Quadratic ? longest_first(order)
                                                           : first_fit(order);
  }

  [[nodiscard]] std::int64_t length(std::int64_t sample) const {
    return lengths_[static_cast<std::size_t>(sample)];
  }

 private:
  [[nodiscard]] std::optional<Bins> longest_first(const SampleIds& order) const {
    Bins bins(static_cast<std::size_t>(options_.ranks));
    LoadHeap heap(bins.size());
    for (const std::int64_t sample : order) {
      if (heap.least() + length(sample) > options_.capacity) {
        return std::nullopt;
      }
      bins[heap.least_bin()].push_back(sample);
      heap.add_to_least(length(sample));
    }
    return bins;
  }

  [[nodiscard]] std::optional<Bins> first_fit(const SampleIds& order) const {
    Bins bins(static_cast<std::size_t>(options_.ranks));
    SampleIds room(bins.size(), options_.capacity);
    for (const std::int64_t sample : order) {
      const auto found =
          std::ranges::find_if(room, [&](std::int64_t left) { return left >= length(sample); });
      if (found == room.end()) {
        return std::nullopt;
      }
      *found -= length(sample);
      bins[static_cast<std::size_t>(found - room.begin())].push_back(sample);
    }
    return bins;
  }

  std::span<const std::int64_t> lengths_;
  const Multipack& options_;
};

}  // namespace

std::vector<std::vector<std::vector<std::int64_t>>> multipack(std::span<const std::int64_t> order,
                                                              std::span<const std::int64_t> lengths,
                                                              const Multipack& options) {
  const Packer packer(lengths, options);
  const std::int64_t slots = options.capacity * options.ranks;
  std::vector<Bins> plan(static_cast<std::size_t>(options.ranks));
  std::size_t begin = 0;
  while (begin < order.size()) {
    // More samples than fit by their sum alone need not be tried.
    std::size_t above = 1;
    std::int64_t sum = 0;
    for (std::size_t i = begin; i < order.size(); ++i, ++above) {
      sum += packer.length(order[i]);
      if (sum > slots) {
        break;
      }
    }
    std::size_t count = 1;
    while (above - count > 1) {
      const std::size_t middle = count + (above - count) / 2;
      if (packer.pack(order.subspan(begin, middle))) {
        count = middle;
      } else {
        above = middle;
      }
    }
    const auto bins = packer.pack(order.subspan(begin, count));
    const auto unused = [](const SampleIds& bin) { return bin.empty(); };
    if (!bins || std::ranges::any_of(*bins, unused)) {
      break;
    }
    for (std::size_t rank = 0; rank < plan.size(); ++rank) {
      plan[rank].push_back((*bins)[rank]);
    }
    begin += count;
  }
  return plan;
}

}  // namespace stepsim
