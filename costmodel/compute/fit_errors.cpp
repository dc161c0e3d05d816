#include "costmodel/compute/fit_errors.h"

#include <algorithm>
#include <cmath>

namespace stepsim {

double shared_error(const FitErrors& errors, int samples) {
  const double scattered =
      errors.random.value_or(0) / std::sqrt(std::max(1.0, static_cast<double>(samples)));
  return std::hypot(errors.bias.value_or(errors.random.value_or(0)), scattered);
}

}  // namespace stepsim
