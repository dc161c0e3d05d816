#pragma once

#include <cstdint>

#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {

/// Weights, moments and gradient of an AdamW update; seven of them lie off the alignment of packs.
struct AdamWProblem {
  std::int64_t skew = 0;
  DeviceArray w;
  DeviceArray m;
  DeviceArray v;
  DeviceArray g;
};

/// Returns the problem of `count` weights with fixed numbers.
[[nodiscard]] inline AdamWProblem adamw_problem(Dtype dtype, std::int64_t count) {
  const std::int64_t skew = count == 7 ? 1 : 0;
  return {skew,
          DeviceArray(dtype, numbers(count, 1), skew),
          DeviceArray(dtype, numbers(count, 2, 0.1), skew),
          DeviceArray(dtype, numbers(count, 3, 0.01, 0.0101), skew),
          DeviceArray(dtype, numbers(count, 4), skew)};
}

}  // namespace stepsim::cuda::test
