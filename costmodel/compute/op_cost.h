#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/compute/cost_form.h"
#include "costmodel/compute/cost_model.h"
#include "costmodel/compute/fit_errors.h"
#include "costmodel/compute/gemm_ratio.h"
#include "costmodel/compute/knots.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// One fitted cost: an entry of a profile. A zero in n, k, heads or head_dim means "any": such an
/// entry prices the sizes of its class that were never measured. The form decides which of the
/// members from `knots` to `gemm_ratio` are used (see cost_form.cpp).
struct OpCost {
  OpClass op_class = OpClass::Gemm;
  Pass pass = Pass::Forward;
  Dtype dtype = Dtype::F32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  CostForm form = CostForm::Table;
  Knots knots;                        ///< y is in seconds, or a ratio.
  std::vector<std::string> features;  ///< Names that feature_value() knows.
  std::vector<double> coefficients;   ///< [feature] Seconds per unit of the feature.
  std::int64_t processors = 0;        ///< Multiprocessors of the device; features of waves need it.
  GemmRatio gemm_ratio;
  double range_lo = 0;  ///< The measured range of range_variable().
  double range_hi = 0;
  int samples = 0;  ///< Measurements that were fitted.
  FitErrors errors;

  bool operator==(const OpCost&) const = default;
};

/// Prices this op and batch, and says how far outside the measured range they are.
///
/// `extrapolation` is range_variable() / range_hi above the range, and range_lo / range_variable()
/// with `smaller` below it, where the price has the error that it has inside: the smallest entry is
/// the cost of a launch, as long as it is small. `relative_error` is the random
/// held-out error inside the range; outside it is the larger of that and the error beyond the grid,
/// times the extrapolation. Raises InputError when the form cannot price the op.
[[nodiscard]] Cost evaluate(const OpCost& cost, const Op& op, const BatchShape& batch);

}  // namespace stepsim
