#pragma once

#include <vector>

#include "calibrate/cuda/device.h"
#include "tests/cuda/host_array.h"

namespace stepsim::cuda {

/// An array on the device that tests fill and read as doubles.
class DeviceArray {
 public:
  DeviceArray(Dtype dtype, std::size_t count) : dtype_(dtype), count_(count), buffer_(bytes()) {}
  /// Rounds `values` to `dtype`.
  DeviceArray(const Stream& stream, Dtype dtype, const std::vector<double>& values)
      : DeviceArray(dtype, values.size()) {
    write(stream, values);
  }

  void write(const Stream& stream, const std::vector<double>& values) {
    std::vector<std::byte> host(bytes());
    for (std::size_t i = 0; i < count_; ++i) {
      store({host.data(), dtype_}, static_cast<std::int64_t>(i), values[i]);
    }
    copy_to_device(stream, buffer_.data(), host.data(), host.size());
    stream.synchronize();
  }
  [[nodiscard]] std::vector<double> read(const Stream& stream) const {
    std::vector<std::byte> host(bytes());
    copy_to_host(stream, host.data(), buffer_.data(), host.size());
    stream.synchronize();
    std::vector<double> values(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      values[i] = load({host.data(), dtype_}, static_cast<std::int64_t>(i));
    }
    return values;
  }
  [[nodiscard]] Array array() const { return {buffer_.data(), dtype_}; }

 private:
  [[nodiscard]] std::size_t bytes() const {
    return count_ * static_cast<std::size_t>(element_size(dtype_));
  }

  Dtype dtype_;
  std::size_t count_;
  DeviceBuffer buffer_;
};

/// Integers on the device.
inline DeviceBuffer device_integers(const Stream& stream, const std::vector<std::int32_t>& values) {
  DeviceBuffer buffer(values.size() * sizeof(std::int32_t));
  copy_to_device(stream, buffer.data(), values.data(), values.size() * sizeof(std::int32_t));
  stream.synchronize();
  return buffer;
}

/// Largest relative error of rounding to nearest.
[[nodiscard]] inline double unit_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::Bf16:
      return 0x1p-9;  // 8 significant bits
    case Dtype::F16:
      return 0x1p-12;  // 11
    case Dtype::Tf32:
      return 0x1p-12;  // 11
    default:
      return 0x1p-24;
  }
}

}  // namespace stepsim::cuda
