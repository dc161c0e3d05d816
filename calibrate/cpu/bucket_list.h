#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "calibrate/cpu/buffer.h"
#include "calibrate/cpu/parameter_store.h"

namespace stepsim::cpu {

/// DDP's buckets of one rank: flat copies of the gradients, counted down as gradients get ready.
class BucketList {
 public:
  /// Raises InputError: not every parameter exactly once.
  void assign(const std::vector<std::vector<int>>& buckets, const ParameterStore& store);

  [[nodiscard]] std::size_t size() const { return buckets_.size(); }
  [[nodiscard]] std::span<float> data(std::size_t bucket);
  [[nodiscard]] std::int64_t elements(std::size_t bucket) const {
    return buckets_[bucket].elements;
  }

  void start_step();
  /// Gradient -> its place in the bucket, times `factor`.
  void copy_in(const ParameterStore& store, int parameter, float factor);
  /// The next bucket in launch order, when all its gradients are in; to be called until false.
  bool next_ready(std::size_t& bucket);
  /// Bucket -> gradients.
  void copy_out(ParameterStore& store, std::size_t bucket);

 private:
  struct Bucket {
    std::vector<int> parameters;
    std::int64_t elements = 0;
    int pending = 0;
    Buffer buffer;
  };
  struct Place {
    std::size_t bucket = 0;
    std::int64_t offset = 0;
  };
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  ///< [parameter]
  std::size_t next_ = 0;
};

}  // namespace stepsim::cpu
