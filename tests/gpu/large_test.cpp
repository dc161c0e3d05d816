#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "tests/gpu/checks.h"

// Arrays of more than 2^31 elements, on a GPU with the memory for them: indices of 32 bits would
// leave their ends as they were.

namespace stepsim::cuda::test {
namespace {

constexpr std::int64_t kWidth = 2056;
constexpr std::int64_t kRows = (std::int64_t{1} << 20) + 3;

/// The last row of a matrix of bf16 numbers, as doubles.
std::vector<double> last_row(const Array& matrix) {
  const DeviceArray row(Dtype::Bf16, kWidth);
  copy_on_device(stream(),
                 row.array().data,
                 matrix.at((kRows - 1) * kWidth).data,
                 static_cast<std::size_t>(kWidth) * 2);
  return row.read();
}

}  // namespace

TEST_CASE("cuda: arrays of more than 2^31 elements") {
  constexpr std::size_t kBytes = static_cast<std::size_t>(kRows) * kWidth * 2;
  if (free_memory_bytes() < static_cast<std::int64_t>(3 * kBytes)) {
    MESSAGE("not checked: the device has less than " << 3 * kBytes << " bytes free");
    return;
  }
  const DeviceBuffer memory(kBytes);
  const DeviceBuffer more(kBytes);
  const Array x{memory.data(), Dtype::Bf16};
  const Array y{more.data(), Dtype::Bf16};
  fill_uniform(stream(), x, kRows * kWidth, 1, 2, 5);
  set_zero(stream(), y.data, kBytes);
  scaled_copy(stream(), y, x, 2, kRows * kWidth, Store::Assign);
  const std::vector<double> row = last_row(x);
  const std::vector<double> twice = last_row(y);
  double mean = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    CHECK(twice[i] == 2 * row[i]);
    mean += row[i] / kWidth;
  }
  CHECK(std::abs(mean - 2) < 5 / std::sqrt(3.0 * kWidth));

  const DeviceBuffer saved(static_cast<std::size_t>(kRows) * 2 * sizeof(float));
  norm_forward(stream(), false, y, saved.as<float>(), x, {}, kRows, kWidth);
  const std::vector<double> normal = last_row(y);
  double squares = 0;
  for (const double value : row) {
    squares += (value - mean) * (value - mean) / kWidth;
  }
  // Of the fp32 sums 1e-4 is left, ten times what depth() of them can lose.
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double expected = (row[i] - mean) / std::sqrt(squares + 1e-5);
    CHECK(std::abs(normal[i] - expected) <= 0x1p-8 * std::abs(expected) + 1e-4);
  }
}

}  // namespace stepsim::cuda::test
