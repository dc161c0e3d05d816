#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/training/parameter_store.h"
#include "calibrate/training/bucket_layout.h"

namespace stepsim::cuda {

/// DDP's buckets of one rank: flat copies of the gradients, in their dtype.
class BucketList {
 public:
  /// Raises InputError: not every parameter exactly once.
  void assign(const std::vector<std::vector<int>>& buckets, const ParameterStore& store);

  [[nodiscard]] std::size_t size() const { return layout_.size(); }
  [[nodiscard]] Array data(std::size_t bucket) const { return {buffers_[bucket].data(), dtype_}; }
  [[nodiscard]] std::int64_t elements(std::size_t bucket) const { return layout_.elements(bucket); }
  [[nodiscard]] std::int64_t bytes(std::size_t bucket) const {
    return elements(bucket) * element_size(dtype_);
  }

  void start_step() { layout_.start_step(); }
  /// Gradient -> its place in the bucket, times `factor`.
  void copy_in(const Stream& stream, const ParameterStore& store, int parameter, float factor);
  /// The next bucket in launch order, when all its gradients are in; to be called until false.
  bool next_ready(std::size_t& bucket) { return layout_.next_ready(bucket); }
  /// Bucket -> gradients, one copy a parameter, as DDP does it.
  void copy_out(const Stream& stream, const ParameterStore& store, std::size_t bucket) const;

 private:
  Dtype dtype_ = Dtype::F32;
  BucketLayout layout_;
  std::deque<DeviceBuffer> buffers_;
};

}  // namespace stepsim::cuda
