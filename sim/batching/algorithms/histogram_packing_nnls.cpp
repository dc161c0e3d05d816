#include <algorithm>
#include <cmath>
#include <map>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/histogram_packing.h"
#include "sim/batching/algorithms/sparse_nnls.h"

namespace stepsim {
namespace {

using Lengths = std::vector<std::int64_t>;

/// Ways to write `capacity` as a sum of at most `parts` parts, or kMaxFullPacks + 1 if there are
/// more: as many as sums of parts of at most `parts`.
std::int64_t full_packs(std::int64_t capacity, std::int64_t parts) {
  if (parts == 1) {
    return 1;
  }
  // Two parts alone make capacity / 2 + 1.
  const std::int64_t above = kMaxFullPacks + 1;
  if (capacity / 2 >= kMaxFullPacks) {
    return above;
  }
  Lengths ways(static_cast<std::size_t>(capacity) + 1, 0);
  ways[0] = 1;
  for (std::int64_t part = 1; part <= std::min(parts, capacity); ++part) {
    for (auto sum = static_cast<std::size_t>(part); sum < ways.size(); ++sum) {
      ways[sum] = std::min(above, ways[sum] + ways[sum - static_cast<std::size_t>(part)]);
    }
    if (ways.back() == above) {
      break;
    }
  }
  return ways.back();
}

/// Appends all ways to fill `room` with `parts` sequences at most of `least` tokens at least.
void add_full_packs(std::int64_t room,
                    std::int64_t least,
                    std::int64_t parts,
                    Lengths& pack,
                    std::vector<Lengths>& packs) {
  for (std::int64_t length = least; parts > 1 && 2 * length <= room; ++length) {
    pack.push_back(length);
    add_full_packs(room - length, length, parts - 1, pack, packs);
    pack.pop_back();
  }
  packs.push_back(pack);
  packs.back().push_back(room);
}

/// [length - 1] weight of a sequence too many or too few.
Eigen::VectorXd weights(std::size_t capacity) {
  constexpr Eigen::Index kShort = 8;
  const auto size = static_cast<Eigen::Index>(capacity);
  Eigen::VectorXd result = Eigen::VectorXd::Ones(size);
  result.head(std::min(kShort, size))
      .setConstant(std::min(1.0, std::sqrt(0.5 * kShort / static_cast<double>(capacity))));
  return result;
}

/// [pack] how many of each, before rounding.
Eigen::VectorXd least_squares(const std::vector<Lengths>& packs,
                              std::span<const std::int64_t> counts) {
  const Eigen::VectorXd weight = weights(counts.size());
  std::vector<Eigen::Triplet<double>> entries;
  for (std::size_t pack = 0; pack < packs.size(); ++pack) {
    for (const std::int64_t length : packs[pack]) {
      entries.emplace_back(length - 1, pack, weight(length - 1));
    }
  }
  const auto capacity = static_cast<Eigen::Index>(counts.size());
  Eigen::SparseMatrix<double> a(capacity, std::ssize(packs));
  a.setFromTriplets(entries.begin(), entries.end());
  Eigen::VectorXd b(capacity);
  for (Eigen::Index i = 0; i < capacity; ++i) {
    b(i) = weight(i) * static_cast<double>(counts[static_cast<std::size_t>(i)]);
  }
  // A thousandth of a sequence, or what rounding leaves of large counts.
  return sparse_nnls(a, b, std::max(1e-3, 1e-12 * b.norm()));
}

using Strategies = std::map<Lengths, std::int64_t>;

/// Takes `count` packs out of what is left; a place without a sequence stays empty.
void take(const Lengths& pack, std::int64_t count, Lengths& left, Strategies& strategies) {
  Strategies parts = {{{}, count}};
  for (const std::int64_t length : pack) {
    Strategies filled;
    std::int64_t& own = left[static_cast<std::size_t>(length) - 1];
    // Last the packs that are still empty, which sort before all others.
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      const std::int64_t placed = std::min(own, part->second);
      own -= placed;
      if (placed > 0) {
        Lengths longer = part->first;
        longer.push_back(length);
        filled[longer] += placed;
      }
      if (placed < part->second) {
        filled[part->first] += part->second - placed;
      }
    }
    parts = std::move(filled);
  }
  for (const auto& [lengths, packs] : parts) {
    if (!lengths.empty()) {
      strategies[lengths] += packs;
    }
  }
}

}  // namespace

HistogramPacking pack_least_squares(std::span<const std::int64_t> counts,
                                    std::int64_t max_sequences) {
  const auto capacity = static_cast<std::int64_t>(counts.size());
  if (full_packs(capacity, max_sequences) > kMaxFullPacks) {
    throw InputError(
        "algorithm \"nnlshp\" weighs every way to fill {} tokens with {} samples or "
        "fewer, and these are more than {}; lower max_sequences_per_pack (3 is usual)",
        capacity,
        max_sequences,
        kMaxFullPacks);
  }
  std::vector<Lengths> packs;
  Lengths pack;
  add_full_packs(capacity, 1, max_sequences, pack, packs);
  const Eigen::VectorXd wanted = least_squares(packs, counts);
  Lengths left(counts.begin(), counts.end());
  Strategies strategies;
  for (std::size_t i = 0; i < packs.size(); ++i) {
    const auto count = std::llrint(wanted(static_cast<Eigen::Index>(i)));
    if (count > 0) {
      take(packs[i], count, left, strategies);
    }
  }
  for (const auto& [count, lengths] : pack_longest_first(left, max_sequences).strategies) {
    strategies[lengths] += count;
  }
  HistogramPacking result;
  for (const auto& [lengths, count] : strategies) {
    result.strategies.push_back({count, lengths});
  }
  return result;
}

}  // namespace stepsim
