#include "calibrate/cuda/training/workspace.h"

namespace stepsim::cuda {
namespace {

std::size_t bytes_of(std::int64_t elements, Dtype dtype) {
  return static_cast<std::size_t>(elements * element_size(dtype));
}

}  // namespace

Value& Workspace::make(Extent extent, std::int64_t width, Dtype dtype) {
  Value& value = values_.emplace_back();
  value.extent = extent;
  value.width = width;
  value.dtype = dtype;
  return value;
}

std::int64_t Workspace::rows(const Value& value) const {
  switch (value.extent) {
    case Extent::Tokens:
      return batch_.size().rows;
    case Extent::Samples:
      return batch_.size().samples;
    case Extent::Padded:
      return batch_.size().samples * batch_.size().length;
    case Extent::Scores:
      return batch_.size().rows * batch_.size().length;
  }
  return 0;
}

Array Workspace::write(Value& value) const {
  value.data.reserve(bytes_of(elements(value), value.dtype));
  return value.array();
}

GradientSlot Workspace::write_gradient(Value& value) {
  if (value.gradient != nullptr) {
    return {value.gradient_array(), Store::Add};
  }
  Block* found = nullptr;
  for (Block& block : blocks_) {
    if (!block.used && block.extent == value.extent && block.width == value.width) {
      found = &block;
      break;
    }
  }
  if (found == nullptr) {
    found = &blocks_.emplace_back(Block{value.extent, value.width, false, {}});
  }
  found->used = true;
  found->buffer.reserve(bytes_of(elements(value), value.dtype));
  value.gradient = &found->buffer;
  return {value.gradient_array(), Store::Assign};
}

void Workspace::release_gradient(Value& value) {
  for (Block& block : blocks_) {
    if (&block.buffer == value.gradient) {
      block.used = false;
    }
  }
  value.gradient = nullptr;
}

void Workspace::move_gradient(Value& from, Value& to) {
  to.gradient = from.gradient;
  from.gradient = nullptr;
}

Array Workspace::scratch(std::int64_t elements, Dtype dtype) {
  scratch_.reserve(bytes_of(elements, dtype));
  return {scratch_.data(), dtype};
}

}  // namespace stepsim::cuda
