#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sim/batching/random/mersenne_twister.h"

namespace stepsim {

/// CPython's random.Random(seed), bit for bit: init_by_array seeding, 53-bit random(), rejection
/// sampling below n, Fisher-Yates from the end.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint64_t seed);
  [[nodiscard]] std::uint32_t next_u32() { return generator_(); }
  [[nodiscard]] double random();                          ///< In [0, 1), multiples of 2^-53.
  [[nodiscard]] double uniform(double low, double high);  ///< low + (high - low) * random().
  [[nodiscard]] double normal();  ///< Of two draws by Box-Muller, the cosine; not Python's.
  /// randrange(n). Throws std::invalid_argument unless 1 <= n < 2^32.
  [[nodiscard]] std::uint64_t below(std::uint64_t n);

  template <typename T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i-- > 1;) {
      std::swap(items[i], items[draw_below(static_cast<std::uint32_t>(i + 1))]);
    }
  }

 private:
  /// 1 <= n. As many high bits as n has, drawn again while too large.
  std::uint32_t draw_below(std::uint32_t n) {
    const int shift = std::countl_zero(n);
    std::uint32_t drawn = next_u32() >> shift;
    while (drawn >= n) {
      drawn = next_u32() >> shift;
    }
    return drawn;
  }

  MersenneTwister generator_;
};

/// Fisher-Yates from the end as numpy does it: of each 32-bit draw the bits that can be needed,
/// drawn again while too large.
template <typename T, typename Draw>
void shuffle_masked(std::span<T> items, Draw draw) {
  for (std::size_t i = items.size(); i-- > 1;) {
    const std::size_t mask = std::bit_ceil(i + 1) - 1;
    std::size_t drawn = draw() & mask;
    while (drawn > i) {
      drawn = draw() & mask;
    }
    std::swap(items[i], items[drawn]);
  }
}

/// numpy's legacy RandomState(seed), as numpy.random.seed and fairseq use it: MT19937 seeded with
/// one word, shuffles from the end with masked rejection.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed) : generator_(seed) {}

  template <typename T>
  void shuffle(std::span<T> items) {
    shuffle_masked(items, [this] { return generator_(); });
  }

 private:
  MersenneTwister generator_;
};

/// RandomState(seed).permutation(n); only the low 32 bits of the seed count.
[[nodiscard]] std::vector<std::int64_t> numpy_permutation(std::int64_t n, std::uint64_t seed);

/// Permutes `values` as torch.randperm(values.size()) on CPU does with manual_seed(seed), as far as
/// the first `count` of them are right; only the low 32 bits of the seed count.
///
/// Raises:
///     std::invalid_argument: 2^32 / 20 values or more, where torch changes to 64-bit draws.
void torch_shuffle_head(std::span<std::int64_t> values, std::size_t count, std::uint64_t seed);

/// torch.randperm(n), the same way.
///
/// Raises:
///     std::invalid_argument: n < 0 or too many.
[[nodiscard]] std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

}  // namespace stepsim
