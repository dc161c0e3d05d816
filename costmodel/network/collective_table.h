#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/compute/cost_model.h"
#include "costmodel/compute/fit_errors.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// The measured times of one collective among a fixed number of ranks, by size.
struct CollectiveCost {
  std::string kind = "all_reduce";
  int ranks = 0;
  int nodes = 1;
  Dtype dtype = Dtype::F32;
  std::vector<std::pair<double, double>> knots;  ///< (bytes per rank, mean seconds), ascending.
  /// How single calls scatter around the mean: quantiles of time / mean, evenly spaced from the
  /// smallest to the largest. Empty: every call takes the mean.
  std::vector<double> spread;
  /// The slope beyond the last knot; absent: default_tail().
  std::optional<double> tail_seconds_per_byte;
  FitErrors errors;

  bool operator==(const CollectiveCost&) const = default;
};

/// Returns the slope beyond the last knot of a table that states none: tail_slope() of the knots
/// from half the largest size on, of at least three.
[[nodiscard]] double default_tail(const CollectiveCost& table);

/// Prices one call from a measured table, which must have knots.
///
/// Between knots the price is linear. Below the first knot it is that knot's time up to 32 KiB,
/// where times are flat. Below a first knot larger than that the line through the first two goes
/// on, down to 32 KiB, between the time in proportion to the bytes and the first knot's own
/// (half-way between these with one knot): an extrapolation, whose error grows by 18 % with each
/// halving.
/// Messages up to 32 KiB that are too far below are priced in proportion, with an error of 1.
/// Beyond the last knot it continues with the tail's slope, and the error is that of extrapolated
/// sizes (FitErrors::beyond) times the factor beyond.
/// Raises InputError: the size is more than `max_extrapolation` times outside the table. The
/// message mentions `profile`, the name of the table's profile.
[[nodiscard]] Cost table_cost(const CollectiveCost& table,
                              Bytes bytes,
                              double max_extrapolation,
                              const std::string& profile);

}  // namespace stepsim
