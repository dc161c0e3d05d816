#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/cuda/device/device.h"
#include "costmodel/model/transformer.h"

namespace stepsim::cuda {

/// Tf32 numbers lie in memory as F32.
[[nodiscard]] constexpr Dtype stored_as(Dtype dtype) {
  return dtype == Dtype::Tf32 ? Dtype::F32 : dtype;
}

/// Weights, gradients and AdamW's moments in the parameters' dtype, each kind in one block, and,
/// where the kernels compute in another dtype, copies of the weights in that. Parameters start on
/// 128 elements.
class ParameterStore {
 public:
  ParameterStore(const std::vector<Parameter>& parameters, Dtype parameter_dtype, Dtype compute);

  [[nodiscard]] std::size_t size() const { return elements_.size(); }
  [[nodiscard]] std::int64_t elements(std::size_t p) const { return elements_[p]; }
  [[nodiscard]] Dtype dtype() const { return dtype_; }
  [[nodiscard]] bool has_copies() const { return copy_dtype_ != dtype_; }
  [[nodiscard]] Array weights(std::size_t p) const { return at(weights_, p); }
  [[nodiscard]] Array gradient(std::size_t p) const { return at(gradients_, p); }
  /// What products read: the copy where there is one.
  [[nodiscard]] Array compute_weights(std::size_t p) const;

  /// Brings the copies of parameters first .. last (neighbours) up to date, in one launch: the
  /// casts of automatic mixed precision. Nothing without copies.
  void cast(const Stream& stream, std::size_t first, std::size_t last) const;
  void zero_gradients(const Stream& stream) const;
  /// AdamW over all parameters.
  void optimizer_step(const Stream& stream);

 private:
  [[nodiscard]] Array at(const DeviceBuffer& block, std::size_t p) const {
    return Array{block.data(), dtype_}.at(offset_[p]);
  }

  Dtype dtype_;
  Dtype copy_dtype_;
  std::vector<std::int64_t> elements_;
  std::vector<std::int64_t> offset_;
  std::int64_t total_ = 0;
  std::int64_t updates_ = 0;
  DeviceBuffer weights_;
  DeviceBuffer gradients_;
  DeviceBuffer moment1_;
  DeviceBuffer moment2_;
  DeviceBuffer copies_;
};

}  // namespace stepsim::cuda
