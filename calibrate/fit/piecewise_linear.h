#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace stepsim {

/// Splits a curve into straight segments and returns the index of the last segment's first knot.
///
/// The segments are contiguous and have two knots or more. Each is the line a + b x, a and b not
/// negative, with the least squared relative residuals. They end where they fit best together, and
/// their number, at most 8, is the one with the least Bayesian information criterion (three
/// parameters a segment). With more than 40 knots, segments end at no more than 30 marks, which are
/// equally far apart in log x.
///
/// Args:
///     knots: (x, y), x ascending from above 0, y positive; not empty.
[[nodiscard]] std::size_t last_segment_start(std::span<const std::pair<double, double>> knots);

}  // namespace stepsim
