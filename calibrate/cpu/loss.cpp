#include "calibrate/cpu/loss.h"

#include <algorithm>
#include <cmath>

#include "calibrate/cpu/rows.h"
#include "calibrate/cpu/vector_math.h"

namespace stepsim::cpu {
namespace {

std::int64_t count_targets(const std::int32_t* targets, std::int64_t rows) {
  return std::count_if(targets, targets + rows, [](std::int32_t t) { return t != kNoTarget; });
}

}  // namespace

double cross_entropy_forward(float* probabilities,
                             const float* logits,
                             const std::int32_t* targets,
                             std::int64_t rows,
                             std::int64_t classes) {
  double total = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* __restrict in = logits + row * classes;
    float* __restrict p = probabilities + row * classes;
    const float top = largest(in, classes);
    for (std::int64_t i = 0; i < classes; ++i) {
      p[i] = exp_of(in[i] - top);
    }
    const float normaliser = sum(p, classes);
    scale(p, 1.0F / normaliser, classes);
    if (targets[row] != kNoTarget) {
      total += std::log(static_cast<double>(normaliser)) + static_cast<double>(top) -
               static_cast<double>(in[targets[row]]);
    }
  }
  const std::int64_t counted = count_targets(targets, rows);
  return counted > 0 ? total / static_cast<double>(counted) : 0.0;
}

void cross_entropy_backward(float* dlogits,
                            const float* probabilities,
                            const std::int32_t* targets,
                            double scale,
                            std::int64_t rows,
                            std::int64_t classes) {
  const std::int64_t counted = count_targets(targets, rows);
  const auto factor = static_cast<float>(counted > 0 ? scale / static_cast<double>(counted) : 0.0);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* d = dlogits + row * classes;
    const bool has_target = targets[row] != kNoTarget;
    scaled_copy(d, probabilities + row * classes, has_target ? factor : 0.0F, classes);
    if (has_target) {
      d[targets[row]] -= factor;
    }
  }
}

}  // namespace stepsim::cpu
