#include "tests/gpu/checks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <doctest/doctest.h>

namespace stepsim::cuda::test {
namespace {

constexpr std::int64_t kGuard = 64;  ///< Elements before and after an array.
constexpr unsigned char kGuardByte = 0x5A;

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <typename T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

void encode(Dtype dtype, std::byte* to, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == Dtype::Bf16) {
    put(to, __float2bfloat16_rn(single));
  } else if (dtype == Dtype::F16) {
    put(to, __float2half_rn(single));
  } else {
    put(to, single);
  }
}

double decode(Dtype dtype, const std::byte* from) {
  if (dtype == Dtype::Bf16) {
    return __bfloat162float(get<__nv_bfloat16>(from));
  }
  if (dtype == Dtype::F16) {
    return __half2float(get<__half>(from));
  }
  return get<float>(from);
}

}  // namespace

double unit_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::Bf16:
      return 0x1p-8;
    case Dtype::F16:
      return 0x1p-11;
    default:
      return kRoundoff32;
  }
}

double smallest_error(Dtype dtype) {
  return dtype == Dtype::F16 ? 0x1p-25 : 0x1p-134;
}

double rounded(Dtype dtype, double value) {
  std::byte bytes[sizeof(float)];
  encode(dtype, bytes, value);
  return decode(dtype, bytes);
}

const Stream& stream() {
  static const Stream instance;
  return instance;
}

bool emulated() {
  static const bool is = device_info().name == "emulated device";
  return is;
}

bool small() {
  static const bool is = emulated() || std::getenv("STEPSIM_SMALL_CHECKS") != nullptr;
  return is;
}

std::vector<double> numbers(std::int64_t count, std::uint64_t seed, double bound, double center) {
  std::vector<double> result(static_cast<std::size_t>(count));
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (double& x : result) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    x = center + bound * (static_cast<double>(state >> 11) * 0x1p-52 - 1);
  }
  return result;
}

double depth(std::int64_t terms) {
  return static_cast<double>(terms < 128 ? terms : 128 + terms / 512);
}

DeviceArray::DeviceArray(Dtype dtype, const std::vector<double>& values, std::int64_t skew)
    : dtype_(dtype), skew_(skew), values_(values) {
  const std::int64_t size = element_size(dtype);
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(static_cast<std::size_t>((count + 2 * kGuard) * size),
                               std::byte{kGuardByte});
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte* to = bytes.data() + (kGuard + skew + i) * size;
    encode(dtype, to, values_[static_cast<std::size_t>(i)]);
    values_[static_cast<std::size_t>(i)] = decode(dtype, to);
  }
  buffer_.reserve(bytes.size());
  copy_to_device(stream(), buffer_.data(), bytes.data(), bytes.size());
  stream().synchronize();
}

DeviceArray::DeviceArray(Dtype dtype, std::int64_t count, std::int64_t skew)
    : DeviceArray(dtype, std::vector<double>(static_cast<std::size_t>(count), std::nan("")), skew) {
}

Array DeviceArray::array() const {
  return Array{buffer_.data(), dtype_}.at(kGuard + skew_);
}

float* DeviceArray::floats() const {
  return static_cast<float*>(array().data);
}

std::vector<double> DeviceArray::read() const {
  const std::int64_t size = element_size(dtype_);
  std::vector<std::byte> bytes(buffer_.bytes());
  copy_to_host(stream(), bytes.data(), buffer_.data(), bytes.size());
  stream().synchronize();
  std::vector<double> result(values_.size());
  const std::int64_t first = (kGuard + skew_) * size;
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = decode(dtype_, bytes.data() + first + static_cast<std::int64_t>(i) * size);
  }
  const auto untouched = [](std::byte b) { return b == std::byte{kGuardByte}; };
  const auto end = bytes.begin() + first + static_cast<std::int64_t>(result.size()) * size;
  CHECK(std::all_of(bytes.begin(), bytes.begin() + first, untouched));
  CHECK(std::all_of(end, bytes.end(), untouched));
  return result;
}

DeviceInts::DeviceInts(const std::vector<std::int32_t>& values)
    : values_(values), buffer_(std::max<std::size_t>(4, values.size() * sizeof(std::int32_t))) {
  copy_to_device(stream(), buffer_.data(), values.data(), values.size() * sizeof(std::int32_t));
  stream().synchronize();
}

void check(const DeviceArray& got,
           const std::vector<Expected>& expected,
           double roundings,
           double stored_roundings) {
  const std::vector<double> values = got.read();
  REQUIRE(values.size() == expected.size());
  const double u = unit_roundoff(got.dtype());
  double worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Expected& exact = expected[i];
    const double bound = (roundings * kRoundoff32 + stored_roundings * u) * exact.scale +
                         u * std::abs(exact.value) * (1 + roundings * kRoundoff32) +
                         smallest_error(got.dtype());
    const double share = std::abs(values[i] - exact.value) / bound;
    if (!(share <= worst)) {  // NaN is the worst.
      worst = share;
      worst_at = i;
      if (std::isnan(share)) {
        break;
      }
    }
  }
  const double value = values.empty() ? 0 : values[worst_at];
  const double right = values.empty() ? 0 : expected[worst_at].value;
  CAPTURE(name_of(got.dtype()));
  CAPTURE(worst_at);
  CAPTURE(value);
  CAPTURE(right);
  CHECK(worst <= 1);
}

void check_exact(const DeviceArray& got, const std::vector<double>& expected) {
  const std::vector<double> values = got.read();
  REQUIRE(values.size() == expected.size());
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = values.size(); i-- > 0;) {
    if (!(values[i] == rounded(got.dtype(), expected[i]))) {
      ++wrong;
      first = i;
    }
  }
  CAPTURE(name_of(got.dtype()));
  CAPTURE(first);
  CHECK(wrong == 0);
}

std::vector<Shape> shapes(std::int64_t widest) {
  const std::int64_t most = small() ? 20'000 : 300'000'000;
  std::vector<Shape> result;
  for (const std::int64_t width : {1, 7, 64, 768, 1000, 1023, 4099, 50257}) {
    for (const std::int64_t rows : {1, 3, 257}) {
      if (width <= widest && (rows == 1 || rows * width <= most)) {
        result.push_back({rows, width});
      }
    }
  }
  return result;
}

std::vector<std::int64_t> counts() {
  std::vector<std::int64_t> result{1, 7, 768, 1023, 4099, 50257};
  if (!small()) {
    result.push_back((std::int64_t{132} * 32 * 256 * 8 * 2) + 5);  // Past one turn of the grid.
  }
  return result;
}

}  // namespace stepsim::cuda::test
