#include "calibrate/cuda/ops/op_memory.h"

#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {
namespace {

std::size_t bytes_of(std::int64_t elements, Dtype dtype) {
  return static_cast<std::size_t>(elements * element_size(dtype));
}

}  // namespace

Array OpMemory::read(std::size_t number, std::int64_t elements, Dtype dtype) {
  DeviceBuffer& buffer = read_.at(number);
  const std::size_t bytes = bytes_of(elements, dtype);
  if (bytes > buffer.bytes()) {
    buffer.reserve((bytes + 3) / 4 * 4);
    const auto count = static_cast<std::int64_t>(buffer.bytes()) / element_size(drawn_as_);
    fill_normal(stream_, {buffer.data(), drawn_as_}, count, 1.0F, number + 1);
  }
  return {buffer.data(), stored_as(dtype)};
}

Array OpMemory::write(std::size_t number, std::int64_t elements, Dtype dtype) {
  DeviceBuffer& buffer = written_.at(number);
  buffer.reserve(bytes_of(elements, dtype));
  return {buffer.data(), stored_as(dtype)};
}

void OpMemory::release() {
  for (DeviceBuffer& buffer : read_) {
    buffer.release();
  }
  for (DeviceBuffer& buffer : written_) {
    buffer.release();
  }
}

}  // namespace stepsim::cuda
