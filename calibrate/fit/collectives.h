#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/samples/samples.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// Leave-one-out errors of a collective's table over a band of sizes, as fractions.
struct BandErrors {
  std::string band;            ///< "< 64 KiB", "64 KiB..16 MiB", "> 16 MiB"
  std::optional<double> mean;  ///< Mean |error| of each size predicted from its neighbours.
  std::optional<double> worst;
  std::optional<double> spread;  ///< Noise floor: median of CollectiveSample::noise.
};

/// One table with the errors of its bands.
struct CollectiveFit {
  CollectiveCost cost;
  std::vector<BandErrors> bands;
  double floor = 0;                       ///< Seconds of the fastest size, called by itself.
  std::optional<double> pipelined_floor;  ///< The same of calls back to back, where measured.
};

/// Tables of the times of single calls over size, linear between, one for each collective, number
/// of ranks and nodes. `errors.random` is the leave-one-out error over all inner sizes,
/// `errors.beyond` that of the sizes above half the largest, predicted by table_cost() from the
/// others. The tail is the mean of default_tail() and the slope of the knots from last_piece() on.
[[nodiscard]] std::vector<CollectiveFit> fit_collectives(
    const std::vector<CollectiveSample>& samples);

}  // namespace stepsim
