#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "costmodel/compute/shape_cost.h"
#include "costmodel/model/batch_shape.h"

namespace stepsim {

/// The most shapes that the caches of a run may hold together, and the bytes of one.
inline constexpr std::size_t kMaxCachedShapes = 10'000'000;
inline constexpr std::size_t kCachedShapeBytes = 112;

/// What one mechanism keeps of the shapes that a rank, or all ranks together, have met. A batch
/// without samples has no shape.
class ShapeCache {
 public:
  explicit ShapeCache(const ShapeCost& cost) : cost_(cost) {}

  /// Whether the shape is there, so that nothing has to be built for it.
  [[nodiscard]] bool knows(const BatchShape& batch) const;
  /// Builds the shape unless it is there.
  void meet(const BatchShape& batch);
  /// A compiler has met its limit of graphs and runs everything as it is.
  [[nodiscard]] bool gave_up() const { return gave_up_; }
  /// Entries that the cache holds.
  [[nodiscard]] std::size_t size() const;

 private:
  /// Samples, length, or what stands for them; see ShapeKey.
  struct Key {
    std::int64_t samples = 0;
    std::int64_t length = 0;
    bool padded = true;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  /// A compiled graph: sizes that are 0 are symbolic.
  struct Graph {
    std::int64_t samples = 0;
    std::int64_t length = 0;
    bool operator==(const Graph&) const = default;
  };

  [[nodiscard]] Key key_of(const BatchShape& batch) const;
  [[nodiscard]] bool compiled(const Key& key) const;
  void compile(const Key& key);
  void insert(const Key& key);

  ShapeCost cost_;
  std::list<Key> order_;  ///< From the entry that goes first to the one that goes last.
  std::unordered_map<Key, std::list<Key>::iterator, Hash> known_;
  std::vector<Graph> graphs_;
  std::int64_t largest_ = 0;
  bool gave_up_ = false;
};

}  // namespace stepsim
