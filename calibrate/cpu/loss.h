#pragma once

#include <cstdint>

#include "calibrate/cpu/device.h"

namespace stepsim::cpu {

/// losses[row] = -log softmax(logits)[target], 0 for a row without a target. Keeps the
/// probabilities [row][class] for the backward.
void cross_entropy_forward(const Stream& stream,
                           float* losses,
                           float* probabilities,
                           const float* logits,
                           const std::int32_t* targets,
                           std::int64_t rows,
                           std::int64_t classes);

/// dlogits = scale * (probabilities - one at the target); 0 for rows without a target.
void cross_entropy_backward(const Stream& stream,
                            float* dlogits,
                            const float* logits,
                            const float* probabilities,
                            const std::int32_t* targets,
                            float scale,
                            std::int64_t rows,
                            std::int64_t classes);

/// *total = the sum of `values`, taken in double.
void sum_floats(const Stream& stream, float* total, const float* values, std::int64_t count);

}  // namespace stepsim::cpu
