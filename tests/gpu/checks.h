#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "calibrate/cuda/device/device.h"

/// Arrays and error bounds for the checks of the CUDA kernels against sums in double. The same
/// checks run on a GPU (test_gpu) and on the device emulated on the host (test_cuda_emulated).
namespace stepsim::cuda::test {

inline constexpr std::array kDtypes{Dtype::F32, Dtype::Bf16, Dtype::F16};

/// Of fp32, which all kernels compute in.
constexpr double kRoundoff32 = 0x1p-24;
/// Largest relative error of rounding to `dtype`.
[[nodiscard]] double unit_roundoff(Dtype dtype);
/// Half the distance of the smallest numbers of `dtype`, which are rounded absolutely.
[[nodiscard]] double smallest_error(Dtype dtype);
[[nodiscard]] double rounded(Dtype dtype, double value);

/// The one stream of all checks.
[[nodiscard]] const Stream& stream();

[[nodiscard]] bool emulated();
/// Whether checks leave out the large arrays, whose expected values take the host long: on the
/// emulated device, and where STEPSIM_SMALL_CHECKS is set (under compute-sanitizer).
[[nodiscard]] bool small();

/// Repeatable numbers in [center - bound, center + bound).
[[nodiscard]] std::vector<double> numbers(std::int64_t count,
                                          std::uint64_t seed,
                                          double bound = 1,
                                          double center = 0);

/// Most roundings between a term and the sum of `terms`: chains a thread, then trees.
[[nodiscard]] double depth(std::int64_t terms);

/// Numbers on the device. Reading back checks that nothing around them was overwritten.
class DeviceArray {
 public:
  /// `values` rounded to `dtype`; they start `skew` elements off the alignment of packs.
  DeviceArray(Dtype dtype, const std::vector<double>& values, std::int64_t skew = 0);
  /// NaN, so that what a kernel leaves out shows.
  DeviceArray(Dtype dtype, std::int64_t count, std::int64_t skew = 0);

  [[nodiscard]] Array array() const;
  [[nodiscard]] float* floats() const;  ///< Of an F32 array.
  [[nodiscard]] Dtype dtype() const { return dtype_; }
  /// As they were rounded at the start.
  [[nodiscard]] const std::vector<double>& values() const { return values_; }
  [[nodiscard]] double operator[](std::int64_t i) const {
    return values_[static_cast<std::size_t>(i)];
  }
  /// As they are now, after all work of the stream.
  [[nodiscard]] std::vector<double> read() const;

 private:
  Dtype dtype_;
  std::int64_t skew_;
  std::vector<double> values_;
  DeviceBuffer buffer_;
};

/// Whole numbers on the device.
class DeviceInts {
 public:
  explicit DeviceInts(const std::vector<std::int32_t>& values);
  [[nodiscard]] const std::int32_t* data() const { return buffer_.as<std::int32_t>(); }
  [[nodiscard]] std::int32_t operator[](std::int64_t i) const {
    return values_[static_cast<std::size_t>(i)];
  }

 private:
  std::vector<std::int32_t> values_;
  DeviceBuffer buffer_;
};

/// An exact value, and the magnitude that a rounding on the way to it is relative to: for a sum
/// the sum of the terms' magnitudes.
struct Expected {
  double value = 0;
  double scale = 0;
};

/// Checks |got - value| <= roundings * 2^-24 * scale + stored_roundings * u * scale + u |value|,
/// u the roundoff of the dtype: fp32 roundings on the way, values kept in the dtype on the way
/// (atomic additions), and the result's own.
void check(const DeviceArray& got,
           const std::vector<Expected>& expected,
           double roundings,
           double stored_roundings = 0);

/// Checks that the values are these, rounded once.
void check_exact(const DeviceArray& got, const std::vector<double>& expected);

/// Rows and width of a matrix.
struct Shape {
  std::int64_t rows;
  std::int64_t width;
  [[nodiscard]] std::int64_t count() const { return rows * width; }
};
/// Odd and usual widths up to `widest`, single and many rows.
[[nodiscard]] std::vector<Shape> shapes(std::int64_t widest = 50257);
/// Counts of elements, with and without a remainder of packs.
[[nodiscard]] std::vector<std::int64_t> counts();

}  // namespace stepsim::cuda::test
