#include "costmodel/compute/op_cost.h"

#include <algorithm>

namespace stepsim {

Cost evaluate(const OpCost& cost, const Op& op, const BatchShape& batch) {
  const double inside = cost.errors.random.value_or(0);
  Cost result;
  result.seconds = form_row(cost.form).seconds(cost, op, batch);
  result.relative_error = inside;
  result.shared_error = shared_error(cost.errors, cost.samples);
  const double x = range_variable(cost.form, op, batch);
  if (cost.range_hi > 0 && x > cost.range_hi) {
    result.extrapolation = x / cost.range_hi;
    result.relative_error =
        std::max(cost.errors.beyond.value_or(inside), inside) * result.extrapolation;
    result.shared_error = result.relative_error;
  } else if (x > 0 && x < cost.range_lo) {
    result.extrapolation = cost.range_lo / x;
    result.smaller = true;
  }
  return result;
}

}  // namespace stepsim
