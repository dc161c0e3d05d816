#include "calibrate/cuda/sdpa_offsets.h"

#include <doctest/doctest.h>

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
