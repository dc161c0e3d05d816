#pragma once

#include <deque>
#include <vector>

#include "calibrate/training/bucket_layout.h"
#include "calibrate/training/parameter_store.h"

namespace stepsim {

/// DDP's buckets on one rank: flat copies of the gradients, in the gradients' dtype.
template <typename Device>
class BucketList : public BucketLayout {
 public:
  using Array = typename Device::Array;
  using Stream = typename Device::Stream;

  /// Raises InputError: not every parameter exactly once.
  void assign(const std::vector<std::vector<int>>& buckets, const ParameterStore<Device>& store) {
    BucketLayout::assign(buckets, store.elements());
    dtype_ = store.dtype();
    buffers_.clear();
    for (std::size_t bucket = 0; bucket < size(); ++bucket) {
      buffers_.emplace_back(static_cast<std::size_t>(elements(bucket) * element_size(dtype_)));
    }
  }

  [[nodiscard]] Array data(std::size_t bucket) const { return {buffers_[bucket].data(), dtype_}; }

  /// Copies a gradient, times `factor`, to its place in its bucket.
  void copy_in(const Stream& stream,
               const ParameterStore<Device>& store,
               std::size_t parameter,
               float factor) {
    const Place at = place(parameter);
    scaled_copy(stream,
                data(at.bucket).at(at.offset),
                store.gradient(parameter),
                factor,
                store.elements(parameter),
                Store::Assign);
    gradient_ready(parameter);
  }

  /// Copies a bucket back to its gradients, one copy a parameter, as DDP does.
  void copy_out(const Stream& stream,
                const ParameterStore<Device>& store,
                std::size_t bucket) const {
    for (const int parameter : parameters(bucket)) {
      const auto p = static_cast<std::size_t>(parameter);
      scaled_copy(stream,
                  store.gradient(p),
                  data(bucket).at(place(p).offset),
                  1.0F,
                  store.elements(p),
                  Store::Assign);
    }
  }

 private:
  Dtype dtype_ = Dtype::F32;
  std::deque<typename Device::Buffer> buffers_;
};

}  // namespace stepsim
