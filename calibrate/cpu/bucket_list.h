#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "calibrate/cpu/buffer.h"
#include "calibrate/cpu/parameter_store.h"
#include "calibrate/training/bucket_layout.h"

namespace stepsim::cpu {

/// DDP's buckets of one rank: flat copies of the gradients.
class BucketList {
 public:
  /// Raises InputError: not every parameter exactly once.
  void assign(const std::vector<std::vector<int>>& buckets, const ParameterStore& store);

  [[nodiscard]] std::size_t size() const { return layout_.size(); }
  [[nodiscard]] std::span<float> data(std::size_t bucket);
  [[nodiscard]] std::int64_t elements(std::size_t bucket) const { return layout_.elements(bucket); }

  void start_step() { layout_.start_step(); }
  /// Gradient -> its place in the bucket, times `factor`.
  void copy_in(const ParameterStore& store, int parameter, float factor);
  /// The next bucket in launch order, when all its gradients are in; to be called until false.
  bool next_ready(std::size_t& bucket) { return layout_.next_ready(bucket); }
  /// Bucket -> gradients.
  void copy_out(ParameterStore& store, std::size_t bucket);

 private:
  BucketLayout layout_;
  std::deque<Buffer> buffers_;
};

}  // namespace stepsim::cpu
