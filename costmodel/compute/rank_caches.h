#pragma once

#include <span>
#include <vector>

#include "costmodel/compute/shape_cache.h"

namespace stepsim {

/// The caches of one mechanism: one a rank, or one that all ranks share.
class RankCaches {
 public:
  RankCaches(const ShapeCost& cost, std::size_t ranks)
      : shared_(cost.shared), caches_(cost.shared ? 1 : ranks, ShapeCache(cost)) {}

  /// Returns which ranks have to build the shapes that they meet now. Ranks that meet a shape at
  /// the same time build it side by side, shared or not. `shapes`: [rank] null: none.
  const std::vector<bool>& meet(std::span<const BatchShape* const> shapes) {
    builds_.assign(shapes.size(), false);
    for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
      builds_[rank] = shapes[rank] != nullptr && !cache(rank).knows(*shapes[rank]);
    }
    for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
      if (shapes[rank] != nullptr) {
        cache(rank).meet(*shapes[rank]);
      }
      builds_[rank] = builds_[rank] && !gave_up(rank);
    }
    return builds_;
  }
  [[nodiscard]] bool gave_up(std::size_t rank) const {
    return caches_[shared_ ? 0 : rank].gave_up();
  }
  /// Entries of all caches together.
  [[nodiscard]] std::size_t size() const {
    std::size_t sum = 0;
    for (const ShapeCache& one : caches_) {
      sum += one.size();
    }
    return sum;
  }

 private:
  ShapeCache& cache(std::size_t rank) { return caches_[shared_ ? 0 : rank]; }

  bool shared_;
  std::vector<ShapeCache> caches_;
  std::vector<bool> builds_;
};

}  // namespace stepsim
