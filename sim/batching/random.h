#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace stepsim {

/// CPython's random.Random(seed), bit for bit: init_by_array seeding, 53-bit random(), rejection
/// sampling below n, Fisher-Yates from the end.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint64_t seed);
  [[nodiscard]] std::uint32_t next_u32() { return static_cast<std::uint32_t>(generator_()); }
  [[nodiscard]] double random();                          ///< In [0, 1).
  [[nodiscard]] double uniform(double low, double high);  ///< low + (high - low) * random().
  [[nodiscard]] std::uint64_t below(std::uint64_t n);     ///< randrange(n); n >= 1, n <= 2^32.

  template <typename T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i-- > 1;) {
      std::swap(items[i], items[below(i + 1)]);
    }
  }

 private:
  std::mt19937 generator_;
};

/// torch.randperm(n) on CPU with manual_seed(seed).
[[nodiscard]] std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

}  // namespace stepsim
