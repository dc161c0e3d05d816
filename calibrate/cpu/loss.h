#pragma once

#include <cstdint>

namespace stepsim::cpu {

/// A row without a target (padding).
constexpr std::int32_t kNoTarget = -1;

/// Mean softmax cross entropy over the rows that have a target; summed in double. Keeps the
/// probabilities [row][class] for the backward.
[[nodiscard]] double cross_entropy_forward(float* probabilities,
                                           const float* logits,
                                           const std::int32_t* targets,
                                           std::int64_t rows,
                                           std::int64_t classes);

/// dlogits = scale / targets * (probabilities - one at the target); 0 for rows without one.
void cross_entropy_backward(float* dlogits,
                            const float* probabilities,
                            const std::int32_t* targets,
                            double scale,
                            std::int64_t rows,
                            std::int64_t classes);

}  // namespace stepsim::cpu
