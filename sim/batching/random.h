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
  [[nodiscard]] double random();                          ///< In [0, 1), multiples of 2^-53.
  [[nodiscard]] double uniform(double low, double high);  ///< low + (high - low) * random().
  /// randrange(n). Throws std::invalid_argument unless 1 <= n < 2^32.
  [[nodiscard]] std::uint64_t below(std::uint64_t n);

  template <typename T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i-- > 1;) {
      std::swap(items[i], items[below(i + 1)]);
    }
  }

 private:
  std::mt19937 generator_;
};

/// torch.randperm(n) on CPU with manual_seed(seed); only the low 32 bits of the seed count.
///
/// Raises:
///     std::invalid_argument: n < 0, or n >= 2^32 / 20, where torch changes to 64-bit draws.
[[nodiscard]] std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

}  // namespace stepsim
