#include "calibrate/cuda/attention/sdpa_kernels.h"

#include <algorithm>
#include <cstdlib>

#include <doctest/doctest.h>

#include "calibrate/cuda/attention/sdpa.h"
#include "tests/gpu/checks.h"

using namespace stepsim::cuda;

TEST_CASE("offsets of tokens become offsets of elements, past 32 bits") {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 700; ++i) {
    tokens.push_back(i * 3000);
  }
  tokens.back() = 2147483647;
  const auto count = static_cast<std::int64_t>(tokens.size());
  const test::DeviceInts offsets(tokens);
  const DeviceBuffer out(static_cast<std::size_t>(4 * count) * sizeof(std::int64_t));
  const std::array<std::int64_t, 4> strides{3072, 1024, 1, 16};
  element_offsets(test::stream(), out.as<std::int64_t>(), offsets.data(), count, strides);
  std::vector<std::int64_t> result(static_cast<std::size_t>(4 * count));
  copy_to_host(test::stream(), result.data(), out.data(), result.size() * sizeof(std::int64_t));
  test::stream().synchronize();
  std::vector<std::int64_t> expected;
  for (const std::int64_t stride : strides) {
    for (const std::int32_t token : tokens) {
      expected.push_back(token * stride);
    }
  }
  CHECK(result == expected);
}

TEST_CASE("rows of padding are cleared, and nothing else") {
  const std::int64_t samples = 3;
  const std::int64_t length = 5;
  const std::vector<std::int32_t> useful{5, 0, 3};
  const test::DeviceInts lengths(useful);
  const std::int64_t stride = 40;
  const auto values = test::numbers(samples * length * stride, 7);
  const test::DeviceArray a(stepsim::Dtype::Bf16, values);
  const test::DeviceArray b(stepsim::Dtype::Bf16, values);
  clear_padding(
      test::stream(),
      {TokenRows{a.array().at(8).data, stride, 24}, TokenRows{b.array().data, stride, 16}},
      lengths.data(),
      samples,
      length);
  std::vector<double> expected_a = a.values();
  std::vector<double> expected_b = b.values();
  for (std::int64_t row = 0; row < samples * length; ++row) {
    if (row % length >= useful[static_cast<std::size_t>(row / length)]) {
      const auto a_row = expected_a.begin() + row * stride + 8;
      std::fill(a_row, a_row + 24, 0.0);
      const auto b_row = expected_b.begin() + row * stride;
      std::fill(b_row, b_row + 16, 0.0);
    }
  }
  CHECK(a.read() == expected_a);
  CHECK(b.read() == expected_b);
}

TEST_CASE("a mask hides padding, the future and what lies outside the window") {
  const std::vector<std::int32_t> useful{5, 1, 12};
  const std::int64_t length = 12;
  const std::int64_t stride = mask_stride(length);
  CHECK(stride == 16);
  const test::DeviceInts lengths(useful);
  for (const stepsim::Dtype dtype : {stepsim::Dtype::Bf16, stepsim::Dtype::F16}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t window : {0, 1, 4}) {
        const test::DeviceArray mask(dtype, 3 * length * stride);
        padding_mask(test::stream(), mask.array(), {lengths.data(), causal, window}, 3, length);
        const std::vector<double> values = mask.read();
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < 3 * length * stride; ++i) {
          const std::int64_t key = i % stride;
          const std::int64_t query = i / stride % length;
          const bool sees = key < useful[static_cast<std::size_t>(i / stride / length)] &&
                            (!causal || key <= query) &&
                            (window == 0 || std::abs(query - key) < window);
          const double value = values[static_cast<std::size_t>(i)];
          wrong += sees ? (value != 0) : !(value < -65000);
        }
        CHECK(wrong == 0);
      }
    }
  }
}
