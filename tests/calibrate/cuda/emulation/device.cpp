#include "calibrate/cuda/device/device.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "costmodel/base/input_error.h"
#include "tests/calibrate/cuda/emulation/clock.h"
#include "tests/calibrate/cuda/emulation/device_limits.h"

/// The device on host memory: one device, whose streams run their work at once.
namespace stepsim::cuda {
namespace {

/// What an event's handle points to.
struct Recorded {
  std::uint64_t nanoseconds = 0;
};

Recorded& recorded(const Event& event) {
  return *static_cast<Recorded*>(event.handle());
}

constexpr std::size_t kAlignment = 256;
/// New memory holds this, so that a read of what was never written shows (bf16 and fp32: -4e8).
constexpr int kGarbage = 0xCD;

void grow(void*& data, std::size_t& held, std::size_t bytes) {
  if (bytes <= held) {
    return;
  }
  std::free(data);
  data = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (data == nullptr) {
    throw std::bad_alloc();
  }
  std::memset(data, kGarbage, bytes);
  held = bytes;
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) {
    std::memmove(to, from, bytes);
  }
}

}  // namespace

void use_device(int index) {
  if (index != 0) {
    throw EnvironmentFault("the emulated device has index 0, not " + std::to_string(index));
  }
}

DeviceInfo device_info() {
  DeviceInfo info;
  info.name = "emulated device";
  info.bus_id = "0000:00:00.0";
  info.memory_bytes = std::int64_t{1} << 32;
  info.l2_bytes = std::int64_t{1} << 20;
  info.multiprocessors = 2;
  info.compute_major = 8;
  info.compute_minor = 0;
  return info;
}

void synchronize_device() {}

Stream::Stream() : handle_(this) {}

Stream::~Stream() = default;

void Stream::wait(const Event& /*event*/) const {}

void Stream::synchronize() const {}

Event::Event() : handle_(new Recorded) {}

Event::~Event() {
  delete static_cast<Recorded*>(handle_);
}

void Event::record(const Stream& /*stream*/) const {
  recorded(*this).nanoseconds = emulated::device_clock();
}

void Event::synchronize() const {}

double seconds_between(const Event& from, const Event& to) {
  return (static_cast<double>(recorded(to).nanoseconds) -
          static_cast<double>(recorded(from).nanoseconds)) *
         1e-9;
}

DeviceBuffer::~DeviceBuffer() {
  release();
}

void DeviceBuffer::release() {
  emulated::memory_used -= bytes_;
  std::free(std::exchange(data_, nullptr));
  bytes_ = 0;
}

void DeviceBuffer::reserve(std::size_t bytes) {
  if (bytes <= bytes_) {
    return;
  }
  release();
  if (bytes > emulated::memory_limit - std::min(emulated::memory_limit, emulated::memory_used)) {
    throw EnvironmentFault("cudaMalloc of " + std::to_string(bytes) + " bytes: out of memory");
  }
  grow(data_, bytes_, bytes);
  emulated::memory_used += bytes_;
}

HostBuffer::~HostBuffer() {
  std::free(data_);
}

void HostBuffer::reserve(std::size_t bytes) {
  grow(data_, bytes_, bytes);
}

void copy_to_device(const Stream& /*stream*/, void* device, const void* host, std::size_t bytes) {
  copy(device, host, bytes);
}

void copy_to_host(const Stream& /*stream*/, void* host, const void* device, std::size_t bytes) {
  copy(host, device, bytes);
}

void set_zero(const Stream& /*stream*/, void* device, std::size_t bytes) {
  if (bytes > 0) {
    std::memset(device, 0, bytes);
  }
}

}  // namespace stepsim::cuda
