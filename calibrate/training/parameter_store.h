#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/training/kernel_arguments.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// Weights, gradients and AdamW's moments in the parameters' dtype, each kind in one block. Where
/// the kernels compute in another dtype there are copies of the weights in that one too. Every
/// parameter starts at a multiple of 128 elements.
template <typename Device>
class ParameterStore {
 public:
  using Array = typename Device::Array;
  using Buffer = typename Device::Buffer;
  using Stream = typename Device::Stream;

  ParameterStore(const Stream& stream,
                 const std::vector<Parameter>& parameters,
                 Dtype parameter_dtype,
                 Dtype compute)
      : dtype_(stored_as(parameter_dtype)), copy_dtype_(stored_as(compute)) {
    constexpr std::int64_t kAlign = 128;
    for (const Parameter& parameter : parameters) {
      elements_.push_back(parameter.elements());
      offset_.push_back(total_);
      total_ += (parameter.elements() + kAlign - 1) / kAlign * kAlign;
    }
    const auto bytes = static_cast<std::size_t>(total_ * element_size(dtype_));
    for (Buffer* block : {&weights_, &gradients_, &moment1_, &moment2_}) {
      block->reserve(bytes);
      set_zero(stream, block->data(), bytes);
    }
    if (has_copies()) {
      copies_.reserve(static_cast<std::size_t>(total_ * element_size(copy_dtype_)));
    }
    stream.synchronize();
  }

  [[nodiscard]] const std::vector<std::int64_t>& elements() const { return elements_; }
  [[nodiscard]] std::int64_t elements(std::size_t p) const { return elements_[p]; }
  [[nodiscard]] Dtype dtype() const { return dtype_; }
  [[nodiscard]] bool has_copies() const { return copy_dtype_ != dtype_; }
  [[nodiscard]] Array weights(std::size_t p) const { return block(weights_).at(offset_[p]); }
  [[nodiscard]] Array gradient(std::size_t p) const { return block(gradients_).at(offset_[p]); }
  /// The weights that products read: the copy where there is one.
  [[nodiscard]] Array compute_weights(std::size_t p) const {
    return has_copies() ? Array{copies_.data(), copy_dtype_}.at(offset_[p]) : weights(p);
  }

  /// Brings the copies of the neighbouring parameters first .. last up to date in one launch: the
  /// casts of automatic mixed precision. Does nothing where there are no copies.
  void cast(const Stream& stream, std::size_t first, std::size_t last) const {
    if (has_copies()) {
      const std::int64_t count = offset_[last] + elements_[last] - offset_[first];
      scaled_copy(stream, compute_weights(first), weights(first), 1.0F, count, Store::Assign);
    }
  }

  void zero_gradients(const Stream& stream) const {
    set_zero(stream, gradients_.data(), static_cast<std::size_t>(total_ * element_size(dtype_)));
  }

  void set_learning_rate(float rate) { optimizer_.learning_rate = rate; }

  /// Updates all parameters by AdamW.
  void optimizer_step(Device& device) {
    ++updates_;
    device.update(optimizer_,
                  block(weights_),
                  block(moment1_),
                  block(moment2_),
                  block(gradients_),
                  total_,
                  updates_);
  }

 private:
  [[nodiscard]] Array block(const Buffer& buffer) const { return {buffer.data(), dtype_}; }

  Dtype dtype_;
  Dtype copy_dtype_;
  std::vector<std::int64_t> elements_;
  std::vector<std::int64_t> offset_;
  std::int64_t total_ = 0;
  AdamW optimizer_;
  std::int64_t updates_ = 0;
  Buffer weights_;
  Buffer gradients_;
  Buffer moment1_;
  Buffer moment2_;
  Buffer copies_;
};

}  // namespace stepsim
