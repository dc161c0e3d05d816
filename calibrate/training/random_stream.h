#pragma once

#include <cstdint>

namespace stepsim {

/// A stream of random numbers (SplitMix64), the same on every machine.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::int32_t below(std::int64_t bound);  ///< In [0, bound), bound < 2^31.
  float uniform(float bound);              ///< In [-bound, bound).

 private:
  std::uint64_t state_;
};

}  // namespace stepsim
