#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {

TEST_CASE("cuda: sums of rows") {
  for (const Dtype dtype : kDtypes) {
    for (const Shape& shape : shapes()) {
      for (const std::int64_t skew : {0, 1}) {
        CAPTURE(shape.rows);
        CAPTURE(shape.width);
        CAPTURE(skew);
        const DeviceArray x(dtype, numbers(shape.count(), 1), skew);
        const DeviceArray sums(Dtype::F32, shape.rows);
        row_sums(stream(), sums.floats(), x.array(), shape.rows, shape.width);
        std::vector<Expected> expected;
        for (std::int64_t row = 0; row < shape.rows; ++row) {
          Expected sum;
          for (std::int64_t i = 0; i < shape.width; ++i) {
            sum.value += x[row * shape.width + i];
            sum.scale += std::abs(x[row * shape.width + i]);
          }
          expected.push_back(sum);
        }
        check(sums, expected, depth(shape.width));
      }
    }
  }
}

}  // namespace stepsim::cuda::test
