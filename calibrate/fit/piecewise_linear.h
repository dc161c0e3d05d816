#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace stepsim {

/// Index of the first knot of the last of the straight pieces that a curve is made of.
///
/// The pieces are contiguous, of two knots or more, each a line a + b x, neither negative, with the
/// least squared relative residuals; their ends are those that fit best together, and their number,
/// at most 8, is the one with the least Bayesian information criterion (three parameters a piece).
/// With more than 40 knots pieces end at 30 marks at most, equally far apart in log x.
///
/// Args:
///     knots: (x, y), x ascending from above 0, y positive; not empty.
[[nodiscard]] std::size_t last_piece(std::span<const std::pair<double, double>> knots);

}  // namespace stepsim
