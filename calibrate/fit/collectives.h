#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/samples/samples.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// The errors of a collective's table over a band of sizes, as fractions. Each size is predicted
/// from its neighbours.
struct BandErrors {
  std::string band;            ///< "< 64 KiB", "64 KiB..16 MiB", "> 16 MiB"
  std::optional<double> mean;  ///< Mean |error|.
  std::optional<double> worst;
  std::optional<double> spread;  ///< The noise floor: the median of CollectiveSample::noise.
};

/// One collective's table with the errors of its bands.
struct CollectiveFit {
  CollectiveCost cost;
  std::vector<BandErrors> bands;
  double floor = 0;                       ///< Seconds of the fastest size, called by itself.
  std::optional<double> pipelined_floor;  ///< Seconds of it in calls back to back, if measured.
};

/// Fits a table of the times of single calls over size for each collective, number of ranks and
/// nodes. `errors.random` is the mean error of the inner sizes, each predicted from its neighbours;
/// `errors.beyond` is that of the sizes above half the largest, predicted by table_cost() from the
/// others. The tail is the mean of default_tail() and the slope of the knots from
/// last_segment_start() on, in which the lower of the two counts twice. Sizes of a slow region do
/// not count: those that a larger one undercuts by more than 2 %, and those whose bandwidth is more
/// than 10 % below that of a smaller one, unless they reach from a size to four times that size at
/// the end. A sweep that ends in a slow region meets the line of the others at twice its size. All
/// this holds for sweeps with at most four sizes in their last octave.
[[nodiscard]] std::vector<CollectiveFit> fit_collectives(
    const std::vector<CollectiveSample>& samples);

}  // namespace stepsim
