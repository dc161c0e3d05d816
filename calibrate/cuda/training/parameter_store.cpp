#include "calibrate/cuda/training/parameter_store.h"

#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {
namespace {

constexpr std::int64_t kAlign = 128;

}  // namespace

ParameterStore::ParameterStore(const std::vector<Parameter>& parameters,
                               Dtype parameter_dtype,
                               Dtype compute)
    : dtype_(stored_as(parameter_dtype)), copy_dtype_(stored_as(compute)) {
  for (const Parameter& parameter : parameters) {
    elements_.push_back(parameter.elements());
    offset_.push_back(total_);
    total_ += (parameter.elements() + kAlign - 1) / kAlign * kAlign;
  }
  const auto bytes = static_cast<std::size_t>(total_ * element_size(dtype_));
  const Stream stream;
  for (DeviceBuffer* block : {&weights_, &gradients_, &moment1_, &moment2_}) {
    block->reserve(bytes);
    set_zero(stream, block->data(), bytes);
  }
  if (has_copies()) {
    copies_.reserve(static_cast<std::size_t>(total_ * element_size(copy_dtype_)));
  }
  stream.synchronize();
}

Array ParameterStore::compute_weights(std::size_t p) const {
  return has_copies() ? Array{copies_.data(), copy_dtype_}.at(offset_[p]) : weights(p);
}

void ParameterStore::cast(const Stream& stream, std::size_t first, std::size_t last) const {
  if (has_copies()) {
    const std::int64_t count = offset_[last] + elements_[last] - offset_[first];
    scaled_copy(stream, compute_weights(first), weights(first), 1.0F, count, Store::Assign);
  }
}

void ParameterStore::zero_gradients(const Stream& stream) const {
  set_zero(stream, gradients_.data(), static_cast<std::size_t>(total_ * element_size(dtype_)));
}

void ParameterStore::optimizer_step(const Stream& stream) {
  ++updates_;
  adamw_update(stream,
               AdamW{},
               {weights_.data(), dtype_},
               {moment1_.data(), dtype_},
               {moment2_.data(), dtype_},
               {gradients_.data(), dtype_},
               {},
               total_,
               updates_);
}

}  // namespace stepsim::cuda
