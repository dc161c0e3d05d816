#pragma once

#include <cstdint>
#include <vector>

namespace stepsim {

/// Cosines, then sines, [position][head_dim / 2], of the angles position * theta^(-2 i / head_dim)
/// with theta = 10000. Source: Su et al. 2104.09864.
[[nodiscard]] std::vector<float> rotary_angles(std::int64_t positions, std::int64_t head_dim);

}  // namespace stepsim
