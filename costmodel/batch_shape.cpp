#include "costmodel/batch_shape.h"

#include <algorithm>

namespace stepsim {

BatchShape batch_shape(std::span<const std::int64_t> lengths) {
  BatchShape shape;
  shape.samples = static_cast<std::int64_t>(lengths.size());
  for (const std::int64_t length : lengths) {
    shape.max_length = std::max(shape.max_length, length);
    shape.useful_tokens += length;
    shape.sum_squares += static_cast<double>(length) * static_cast<double>(length);
  }
  return shape;
}

}  // namespace stepsim
