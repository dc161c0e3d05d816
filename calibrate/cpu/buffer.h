#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace stepsim::cpu {

/// Floats on a cache line boundary that grow and never shrink; growing forgets the contents.
class Buffer {
 public:
  /// At least `count` floats; a new block is zero.
  float* reserve(std::size_t count) {
    if (count > capacity_) {
      const std::size_t bytes = (count * sizeof(float) + kAlign - 1) / kAlign * kAlign;
      data_.reset();
      auto* block = static_cast<float*>(std::aligned_alloc(kAlign, bytes));
      if (block == nullptr) {
        throw std::bad_alloc();
      }
      data_.reset(block);
      capacity_ = bytes / sizeof(float);
      // Also touches every page now, instead of inside a timed kernel.
      for (std::size_t i = 0; i < capacity_; ++i) {
        block[i] = 0;
      }
    }
    return data_.get();
  }
  [[nodiscard]] float* data() { return data_.get(); }
  [[nodiscard]] const float* data() const { return data_.get(); }

 private:
  static constexpr std::size_t kAlign = 64;
  struct Free {
    void operator()(float* block) const { std::free(block); }
  };
  std::unique_ptr<float, Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace stepsim::cpu
