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

/// All points of one op. They become one entry of the profile.
struct Series {
  Op op;
  std::vector<SeriesPoint> points;  ///< Ascending by order_variable().
};

/// Groups samples by what a profile's entries differ in: class, pass, dtype, n, k, heads, head_dim.
/// Where two ops differ in nothing but their rows, as DistilBERT's products before the attention
/// and before the classifier, it keeps the one with a row a token: a row a sample is far less work.
/// An op that does not depend on the batch (optimizer, gradient copies) keeps one point, the
/// median. Times below one nanosecond, which no clock shows, become one nanosecond.
[[nodiscard]] std::vector<Series> make_series(const std::vector<OpSample>& samples);

/// The number that points are ordered by, so that neighbours can be held out: the padded length for
/// the parts of dense attention, variable_of() for all others.
[[nodiscard]] double order_variable(const Op& op, const BatchShape& batch);

/// Whether ops of this class are parts of dense attention, whose time goes with samples * length^2.
[[nodiscard]] bool is_dense_attention(OpClass op_class);

}  // namespace stepsim
