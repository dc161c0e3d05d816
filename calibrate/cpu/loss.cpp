#include "calibrate/cpu/loss.h"

#include <cmath>
#include <numeric>

#include "calibrate/cpu/rows.h"
#include "calibrate/cpu/vector_math.h"

namespace stepsim::cpu {

void cross_entropy_forward(const Stream& /*stream*/,
                           float* losses,
                           float* probabilities,
                           const float* logits,
                           const std::int32_t* targets,
                           std::int64_t rows,
                           std::int64_t classes) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* __restrict in = logits + row * classes;
    float* __restrict p = probabilities + row * classes;
    const float top = largest(in, classes);
    for (std::int64_t i = 0; i < classes; ++i) {
      p[i] = exp_of(in[i] - top);
    }
    const float normaliser = sum(p, classes);
    const float inverse = 1.0F / normaliser;
    for (std::int64_t i = 0; i < classes; ++i) {
      p[i] *= inverse;
    }
    losses[row] =
        targets[row] == kNoTarget
            ? 0.0F
            : static_cast<float>(std::log(static_cast<double>(normaliser)) +
                                 static_cast<double>(top) - static_cast<double>(in[targets[row]]));
  }
}

void cross_entropy_backward(const Stream& stream,
                            float* dlogits,
                            const float* /*logits*/,
                            const float* probabilities,
                            const std::int32_t* targets,
                            float scale,
                            std::int64_t rows,
                            std::int64_t classes) {
  for (std::int64_t row = 0; row < rows; ++row) {
    float* d = dlogits + row * classes;
    const bool has_target = targets[row] != kNoTarget;
    const float factor = has_target ? scale : 0.0F;
    scaled_copy(stream, d, probabilities + row * classes, factor, classes, Store::Assign);
    if (has_target) {
      d[targets[row]] -= scale;
    }
  }
}

void sum_floats(const Stream& /*stream*/, float* total, const float* values, std::int64_t count) {
  *total = static_cast<float>(std::accumulate(values, values + count, 0.0));
}

}  // namespace stepsim::cpu
