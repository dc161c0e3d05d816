#include "calibrate/cpu/adamw.h"

#include <cmath>

namespace stepsim::cpu {

void adamw_update(const Stream& /*stream*/,
                  const AdamW& options,
                  float* __restrict weights,
                  float* __restrict m,
                  float* __restrict v,
                  const float* __restrict gradient,
                  float* /*copy*/,
                  std::int64_t count,
                  std::int64_t step) {
  const auto steps = static_cast<double>(step);
  const double correction1 = 1.0 - std::pow(static_cast<double>(options.beta1), steps);
  const double correction2 = 1.0 - std::pow(static_cast<double>(options.beta2), steps);
  const auto rate = static_cast<float>(static_cast<double>(options.learning_rate) / correction1);
  const auto root = static_cast<float>(1.0 / std::sqrt(correction2));
  const float keep = 1.0F - options.learning_rate * options.weight_decay;
  const float b1 = options.beta1;
  const float b2 = options.beta2;
  const float epsilon = options.epsilon;
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i];
    m[i] = b1 * m[i] + (1.0F - b1) * g;
    v[i] = b2 * v[i] + (1.0F - b2) * g * g;
    weights[i] = keep * weights[i] - rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}

}  // namespace stepsim::cpu
