#include "calibrate/training/random_stream.h"

namespace stepsim {

std::uint64_t RandomStream::next() {
  state_ += 0x9E3779B97F4A7C15ULL;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

std::int32_t RandomStream::below(std::int64_t bound) {
  const std::uint64_t high = next() >> 32U;
  return static_cast<std::int32_t>((high * static_cast<std::uint64_t>(bound)) >> 32U);
}

float RandomStream::uniform(float bound) {
  const auto unit = static_cast<float>(next() >> 40U) * 0x1p-24F;
  return bound * (2.0F * unit - 1.0F);
}

}  // namespace stepsim
