#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/calibrate/cuda/plain_attention.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda {

/// Which rows of a batch are compared: with Stored the padding's too, which must be zero.
enum class Compared { Useful, Stored };

/// Worst error in bounds, which are `factor` times the size of each element's terms and half the
/// smallest number; above 1 is wrong, and a message says where.
///
/// Args:
///     actual, column: `columns` elements of a row from `column` on are compared …
///     expected, sizes: … with those from column 0 on.
///     stride: Elements of a row, in all arrays.
inline double worst(const PlainAttention& problem,
                    Compared rows,
                    const std::vector<double>& actual,
                    std::int64_t column,
                    const std::vector<double>& expected,
                    const std::vector<double>& sizes,
                    std::int64_t stride,
                    std::int64_t columns,
                    double factor) {
  double largest = 0;
  std::string where;
  std::int64_t beyond = 0;
  for (std::size_t sample = 0; sample < problem.lengths.size(); ++sample) {
    const std::int64_t first = problem.offsets[sample];
    const std::int64_t end =
        rows == Compared::Useful ? first + problem.lengths[sample] : problem.offsets[sample + 1];
    for (std::int64_t row = first; row < end; ++row) {
      for (std::int64_t i = 0; i < columns; ++i) {
        const auto at = static_cast<std::size_t>(row * stride + i);
        const double apart = std::abs(actual[at + static_cast<std::size_t>(column)] - expected[at]);
        const double bound = factor * sizes[at] + test::smallest_error(problem.shape.dtype);
        const double ratio = apart == 0 ? 0 : apart / bound;
        beyond += ratio <= 1 ? 0 : 1;
        if (!(ratio <= largest)) {
          largest = std::isnan(ratio) ? INFINITY : ratio;
          where = fmt::format("sample {} row {} column {}: {} for {}, of terms of {}",
                              sample,
                              row - first,
                              i,
                              actual[at + static_cast<std::size_t>(column)],
                              expected[at],
                              sizes[at]);
        }
      }
    }
  }
  if (beyond > 0) {
    MESSAGE(beyond, " elements are beyond their bounds; the worst at ", where);
  }
  return largest;
}

}  // namespace stepsim::cuda
