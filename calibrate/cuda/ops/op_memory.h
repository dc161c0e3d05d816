#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "calibrate/cuda/device/device.h"

namespace stepsim::cuda {

/// Memory for the arrays of one op at a time: random numbers that it reads, and room for what it
/// writes. Both grow by need; the next op takes the same memory again.
class OpMemory {
 public:
  /// `dtype`: Of the model. Numbers that were drawn in 16 bit are numbers in F32 as well.
  OpMemory(const Stream& stream, Dtype dtype) : stream_(stream), drawn_as_(stored_as(dtype)) {}

  /// One of several arrays that an op reads, by number.
  [[nodiscard]] Array read(std::size_t number, std::int64_t elements, Dtype dtype);
  /// One of several arrays that an op writes, by number.
  [[nodiscard]] Array write(std::size_t number, std::int64_t elements, Dtype dtype);
  /// Gives all memory back. Waits for the device.
  void release();

 private:
  const Stream& stream_;
  Dtype drawn_as_;
  std::array<DeviceBuffer, 6> read_;
  std::array<DeviceBuffer, 3> written_;
};

}  // namespace stepsim::cuda
