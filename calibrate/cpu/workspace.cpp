#include "calibrate/cpu/workspace.h"

namespace stepsim::cpu {

Value& Workspace::make(Extent extent, std::int64_t width) {
  Value& value = values_.emplace_back();
  value.extent = extent;
  value.width = width;
  return value;
}

std::int64_t Workspace::rows(const Value& value) const {
  switch (value.extent) {
    case Extent::Tokens:
      return batch_.tokens();
    case Extent::Samples:
      return batch_.samples;
    case Extent::Scores:
      return batch_.tokens() * batch_.length;
  }
  return 0;
}

float* Workspace::write(Value& value) const {
  return value.data.reserve(static_cast<std::size_t>(elements(value)));
}

GradientSlot Workspace::write_gradient(Value& value) {
  if (value.gradient != nullptr) {
    return {value.gradient->data(), Store::Add};
  }
  Block* found = nullptr;
  for (Block& block : blocks_) {
    if (!block.used && block.extent == value.extent && block.width == value.width) {
      found = &block;
      break;
    }
  }
  if (found == nullptr) {
    found = &blocks_.emplace_back();
    found->extent = value.extent;
    found->width = value.width;
  }
  found->used = true;
  value.gradient = &found->buffer;
  return {found->buffer.reserve(static_cast<std::size_t>(elements(value))), Store::Assign};
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

}  // namespace stepsim::cpu
