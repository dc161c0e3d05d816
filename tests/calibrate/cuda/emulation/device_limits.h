#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

/// What a test takes from the emulated device.
namespace stepsim::cuda::emulated {

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

/// Device memory that can be had.
inline std::size_t memory_limit = kNoLimit;
inline std::size_t memory_used = 0;

/// Fused attention has no plan for batches of this padded length; 0 = it has all.
inline std::int64_t length_without_plan = 0;

/// Kernels launched so far by all threads, without those of the libraries.
inline std::atomic<std::int64_t> launches = 0;
/// Products, or batches of them, by the library that would have multiplied.
inline std::atomic<std::int64_t> cublaslt_products = 0;
inline std::atomic<std::int64_t> cublas_products = 0;
inline std::atomic<std::int64_t> product_flops = 0;    ///< 2 m n k of each.
inline std::atomic<std::int64_t> product_results = 0;  ///< m n of each.

/// What each product adds to the device's clock, and one with a GELU or its gradient besides.
inline std::uint64_t product_nanoseconds = 0;
inline std::uint64_t gelu_nanoseconds = 0;

/// Sets back what a test has changed.
struct LimitsLifted {
  ~LimitsLifted() {
    product_nanoseconds = gelu_nanoseconds = 0;
    memory_limit = kNoLimit;
    length_without_plan = 0;
  }
};

}  // namespace stepsim::cuda::emulated
