#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "calibrate/training/clock.h"
#include "costmodel/model/transformer.h"

/// The CPU backend in the words of a device: what calibrate/cuda/device/device.h is for a GPU, so
/// that calibrate/training can be written once for both.
namespace stepsim::cpu {

/// The order of work. The CPU does its work when a kernel is called; the stream only tells the
/// compiler which device's kernel is meant.
struct Stream {
  void synchronize() const {}
};

/// A point in time.
struct Event {
  void record(const Stream& /*stream*/) { seconds = clock_seconds(); }
  double seconds = 0;
};
[[nodiscard]] inline double seconds_between(const Event& from, const Event& to) {
  return to.seconds - from.seconds;
}

/// Memory on a cache line boundary that grows and never shrinks. Growing loses the contents; new
/// memory is zero.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes) { reserve(bytes); }

  void reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      bytes_ = (bytes + kAlign - 1) / kAlign * kAlign;
      data_.reset();
      data_.reset(std::aligned_alloc(kAlign, bytes_));
      if (data_ == nullptr) {
        throw std::bad_alloc();
      }
      // Touches every page now, instead of inside a timed kernel.
      std::memset(data_.get(), 0, bytes_);
    }
  }
  void release() {
    data_.reset();
    bytes_ = 0;
  }
  [[nodiscard]] void* data() const { return data_.get(); }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_.get());
  }

 private:
  static constexpr std::size_t kAlign = 64;
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  std::unique_ptr<void, Free> data_;
  std::size_t bytes_ = 0;
};

inline void copy_to_device(const Stream& /*stream*/, void* to, const void* from, std::size_t n) {
  std::memcpy(to, from, n);
}
inline void copy_to_host(const Stream& /*stream*/, void* to, const void* from, std::size_t n) {
  std::memcpy(to, from, n);
}
inline void set_zero(const Stream& /*stream*/, void* data, std::size_t bytes) {
  std::memset(data, 0, bytes);
}

/// Numbers in memory. The CPU's kernels know F32 only and take plain pointers.
struct Array {
  Array() = default;
  Array(void* pointer, Dtype /*dtype*/) : data(static_cast<float*>(pointer)) {}
  explicit Array(float* pointer) : data(pointer) {}
  operator float*() const { return data; }  // NOLINT: implicit, an argument of a kernel.
  /// The array from element `index` on.
  [[nodiscard]] Array at(std::int64_t index) const { return Array(data + index); }

  float* data = nullptr;
};

/// Features of attention heads inside rows of tokens: those of head h start at column
/// h * head_dim; `stride` elements lie between a token and the next.
struct Heads {
  float* data = nullptr;
  std::int64_t stride = 0;
};
struct ConstHeads {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

}  // namespace stepsim::cpu
