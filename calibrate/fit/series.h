#pragma once

#include <vector>

#include "calibrate/samples/samples.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// One measured point of an op: its batch, and the median time.
struct SeriesPoint {
  BatchShape batch;
  double seconds = 0;  ///< Positive.
};

/// All points of one op: what becomes one entry of the profile.
struct Series {
  Op op;
  std::vector<SeriesPoint> points;  ///< By order_variable(), ascending.
};

/// Groups samples by what a profile entry tells apart: class, pass, dtype, n, k, heads, head_dim.
/// An op that does not depend on the batch (optimizer, gradient copies) keeps one point, the
/// median. Times below one nanosecond, which no clock shows, become one nanosecond.
[[nodiscard]] std::vector<Series> make_series(const std::vector<OpSample>& samples);

/// What points are put in order by, for holding out neighbours: the padded length for the parts of
/// dense attention, else variable_of().
[[nodiscard]] double order_variable(const Op& op, const BatchShape& batch);

/// The parts of dense attention: their time goes with samples * length^2.
[[nodiscard]] bool is_dense_attention(OpClass op_class);

}  // namespace stepsim
