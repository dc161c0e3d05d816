#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "costmodel/io/json_file.h"

namespace stepsim {

/// Points (x, y) of a curve, x ascending. In most tables y is in seconds.
using Knots = std::vector<std::pair<double, double>>;

/// Interpolates linearly between knots. Below the first knot the result is the first value; beyond
/// the last one the last line goes on.
[[nodiscard]] double interpolate(const Knots& knots, double x);

/// The value of a table of seconds: interpolated between knots, constant below the first one, and
/// beyond the last one growing with tail_slope(). An empty table gives 0.
[[nodiscard]] double table_value(const Knots& knots, double x);

/// Seconds per unit beyond the last knot: the slope of the line a + b x, a and b not negative, that
/// has the least squared relative residuals through the knots with x >= x_last / `window` (at least
/// the last `fewest`). A single knot gives a line through zero.
[[nodiscard]] double tail_slope(const Knots& knots, double window = 4, std::size_t fewest = 2);

/// The slope of such a line whose a may be negative. Knots of zero seconds have no relative
/// residual and are left out; with fewer than two knots left the slope is 0.
[[nodiscard]] double relative_slope(std::span<const std::pair<double, double>> knots);

/// Reads a member of the form [[x, y], …]: at least one knot, x ascending, neither negative, and no
/// time in "knots_s" above kMaxCostSeconds. Raises InputError.
[[nodiscard]] Knots read_knots(JsonReader& reader, std::string_view key);
/// Writes what read_knots() reads.
[[nodiscard]] Json knots_json(const Knots& knots);

}  // namespace stepsim
