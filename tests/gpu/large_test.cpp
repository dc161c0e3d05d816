#include <cmath>
#include <optional>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "costmodel/base/input_error.h"
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
  scaled_copy(stream(), row.array(), matrix.at((kRows - 1) * kWidth), 1, kWidth);
  return row.read();
}

}  // namespace

TEST_CASE("cuda: arrays of more than 2^31 elements") {
  constexpr std::size_t kBytes = static_cast<std::size_t>(kRows) * kWidth * 2;
  DeviceBuffer memory;
  DeviceBuffer more;
  try {
    memory.reserve(kBytes);
    more.reserve(kBytes);
  } catch (const EnvironmentFault& fault) {
    MESSAGE("not checked: " << fault.what());
    return;
  }
  const Array x{memory.data(), Dtype::Bf16};
  const Array y{more.data(), Dtype::Bf16};
  fill_normal(stream(), x, kRows * kWidth, 1, 5);
  set_zero(stream(), y.data, kBytes);
  scaled_copy(stream(), y, x, 2, kRows * kWidth);
  const std::vector<double> row = last_row(x);
  const std::vector<double> twice = last_row(y);
  double sum = 0;
  double scale = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    CHECK(twice[i] == 2 * row[i]);
    sum += row[i];
    scale += std::abs(row[i]);
  }
  // The mean of so many normal numbers, within five deviations.
  CHECK(std::abs(sum) < 5 * std::sqrt(static_cast<double>(kWidth)));

  const DeviceBuffer sums(static_cast<std::size_t>(kRows) * sizeof(float));
  row_sums(stream(), sums.as<float>(), x, kRows, kWidth);
  const DeviceArray last(Dtype::F32, 1);
  scaled_copy(stream(), last.array(), Array{sums.data(), Dtype::F32}.at(kRows - 1), 1, 1);
  check(last, {{sum, scale}}, depth(kWidth));
}

}  // namespace stepsim::cuda::test
