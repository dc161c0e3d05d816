#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "costmodel/model/transformer.h"

/// The CUDA backend. Nothing in these headers includes CUDA's own: handles are `void*`, so that
/// tests can put a device emulated on the host behind the same functions.
///
/// Every function of this folder raises EnvironmentFault, naming the call, when CUDA refuses it.
namespace stepsim::cuda {

/// What CUDA tells of a device.
struct DeviceInfo {
  std::string name;
  std::string bus_id;  ///< PCI, "0000:1b:00.0".
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  int multiprocessors = 0;
  int compute_major = 0;
  int compute_minor = 0;
};

/// Makes `index` this thread's device. A process that has used one must not fork.
void use_device(int index);
[[nodiscard]] DeviceInfo device_info();  ///< Describes the current device.
void synchronize_device();

class Event;

/// Work in order on the current device; non-blocking towards the default stream. Of normal
/// priority, as PyTorch's streams are: those of DDP's process group, too.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] void* handle() const { return handle_; }  ///< cudaStream_t
  void wait(const Event& event) const;  ///< Later work waits for the event's last record.
  void synchronize() const;

 private:
  void* handle_ = nullptr;
};

/// A point in a stream, with the device's time.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream) const;
  void synchronize() const;
  [[nodiscard]] void* handle() const { return handle_; }  ///< cudaEvent_t

 private:
  void* handle_ = nullptr;
};

/// Device time from one event to a later one; both must be done. Resolution about 0.5 us.
[[nodiscard]] double seconds_between(const Event& from, const Event& to);

/// Memory that grows and never shrinks; contents are lost when it grows. Alignment 256 bytes.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes) { reserve(bytes); }
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  /// Waits for the device before it frees what it had.
  void reserve(std::size_t bytes);
  /// Waits for the device and gives the memory back.
  void release();
  [[nodiscard]] void* data() const { return data_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Page-locked host memory, for copies that do not block and for flags that kernels read (its
/// address holds on the device as well). Grows like DeviceBuffer.
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(std::size_t bytes) { reserve(bytes); }
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  void reserve(std::size_t bytes);
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Copies in stream order; the host side should be a HostBuffer and must stay as it is until then.
void copy_to_device(const Stream& stream, void* device, const void* host, std::size_t bytes);
void copy_to_host(const Stream& stream, void* host, const void* device, std::size_t bytes);
void set_zero(const Stream& stream, void* device, std::size_t bytes);

/// The dtype that numbers have in memory: Tf32 is a way to multiply, its numbers are stored as F32.
[[nodiscard]] constexpr Dtype stored_as(Dtype dtype) {
  return dtype == Dtype::Tf32 ? Dtype::F32 : dtype;
}

/// Device memory with the dtype of its elements: F32, Bf16 or F16 (Tf32 is stored as F32).
struct Array {
  void* data = nullptr;
  Dtype dtype = Dtype::F32;
  /// The array from element `index` on.
  [[nodiscard]] Array at(std::int64_t index) const {
    return {static_cast<std::byte*>(data) + index * element_size(dtype), dtype};
  }
};
struct ConstArray {
  const void* data = nullptr;
  Dtype dtype = Dtype::F32;
  ConstArray() = default;
  ConstArray(const void* pointer, Dtype type) : data(pointer), dtype(type) {}
  ConstArray(const Array& array) : data(array.data), dtype(array.dtype) {}  // NOLINT: implicit
  [[nodiscard]] ConstArray at(std::int64_t index) const {
    return {static_cast<const std::byte*>(data) + index * element_size(dtype), dtype};
  }
};

}  // namespace stepsim::cuda
