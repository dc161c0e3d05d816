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

/// A measured table of one collective.
struct CollectiveCost {
  std::string kind = "all_reduce";
  int ranks = 0;
  int nodes = 1;
  Dtype dtype = Dtype::F32;
  std::vector<std::pair<double, double>> knots;  ///< (bytes per rank, mean seconds), ascending.
  /// How single collectives scatter around that mean: quantiles of time / mean, evenly spaced from
  /// the smallest to the largest; empty = always the mean.
  std::vector<double> spread;
  /// Beyond the last knot; absent: tail_slope() of the knots from half its size on, at least three.
  std::optional<double> tail_seconds_per_byte;
  FitErrors errors;

  bool operator==(const CollectiveCost&) const = default;
};

/// The slope that a table without a stated tail goes on with.
[[nodiscard]] double default_tail(const CollectiveCost& table);

/// Price of one message from a measured table, which has knots.
///
/// Linear between the knots. Below the first one its value: the floor is flat to about 32 KiB, and
/// a first knot above that makes it an extrapolation. Beyond the last one on from there with the
/// tail, with the beyond-the-grid error times the factor beyond.
/// Raises InputError: more than `max_extrapolation` times outside; `profile` names the profile.
[[nodiscard]] Cost table_cost(const CollectiveCost& table,
                              Bytes bytes,
                              double max_extrapolation,
                              const std::string& profile);

}  // namespace stepsim
