#pragma once

#include <cstdint>
#include <vector>

namespace stepsim {

/// Knows where each gradient lies in DDP's buckets, and counts down through a step which bucket is
/// complete and may be launched next.
class BucketLayout {
 public:
  /// Where a gradient lies, in elements from the bucket's start.
  struct Place {
    std::size_t bucket = 0;
    std::int64_t offset = 0;
  };

  /// Takes buckets of parameter indices in launch order; `elements` is [parameter]. Raises
  /// InputError: not every parameter exactly once.
  void assign(const std::vector<std::vector<int>>& buckets,
              const std::vector<std::int64_t>& elements);

  [[nodiscard]] std::size_t size() const { return buckets_.size(); }
  [[nodiscard]] std::int64_t elements(std::size_t bucket) const {
    return buckets_[bucket].elements;
  }
  [[nodiscard]] const std::vector<int>& parameters(std::size_t bucket) const {
    return buckets_[bucket].parameters;
  }
  [[nodiscard]] Place place(std::size_t parameter) const { return places_[parameter]; }

  void start_step();
  void gradient_ready(std::size_t parameter) { --buckets_[places_[parameter].bucket].pending; }
  /// Sets `bucket` to the next one in launch order and returns true when all its gradients are in.
  /// To be called again until it returns false.
  bool next_ready(std::size_t& bucket);

 private:
  struct Bucket {
    std::vector<int> parameters;
    std::int64_t elements = 0;
    int pending = 0;
  };
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  ///< [parameter]
  std::size_t next_ = 0;
};

}  // namespace stepsim
