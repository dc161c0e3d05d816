#include "costmodel/model/batch_shape.h"

#include <algorithm>

namespace stepsim {

double causal_pairs(double length, double window) {
  const double widest = window > 0 ? std::min(length, window) : length;
  return widest * (widest + 1) / 2 + (length - widest) * widest;
}

BatchShape batch_shape(std::span<const std::int64_t> lengths, std::int64_t window) {
  BatchShape shape;
  shape.samples = static_cast<std::int64_t>(lengths.size());
  for (const std::int64_t length : lengths) {
    shape.max_length = std::max(shape.max_length, length);
    shape.useful_tokens += length;
    shape.sum_squares += static_cast<double>(length) * static_cast<double>(length);
    if (window > 0) {
      shape.window_pairs += causal_pairs(static_cast<double>(length), static_cast<double>(window));
    }
  }
  return shape;
}

}  // namespace stepsim
