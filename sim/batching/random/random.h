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
  [[nodiscard]] double random();                          ///< A multiple of 2^-53 in [0, 1).
  [[nodiscard]] double uniform(double low, double high);  ///< low + (high - low) * random().
  [[nodiscard]] double normal();  ///< Box-Muller's cosine of two draws; not Python's own.
  /// randrange(n). Throws std::invalid_argument unless 1 <= n < 2^32.
  [[nodiscard]] std::uint64_t below(std::uint64_t n);

  template <typename T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i-- > 1;) {
      std::swap(items[i], items[draw_below(static_cast<std::uint32_t>(i + 1))]);
    }
  }

 private:
  /// Takes as many high bits as n >= 1 has, and draws again while the value is too large.
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

/// Shuffles by Fisher-Yates from the end, as numpy does: it takes the bits that can be needed of
/// each 32-bit draw, and draws again while the value is too large.
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

/// torch.randperm(n) on the CPU with manual_seed(seed). Only the low 32 bits of the seed
/// count.
///
/// Raises:
///     std::invalid_argument: n < 0 or n >= 2^32 / 20; before any memory is taken.
[[nodiscard]] std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

/// The first `count` <= n of torch_randperm(n, seed). Where they are few of many, time and memory
/// are those of the few.
[[nodiscard]] std::vector<std::int64_t> torch_randperm_head(std::int64_t n,
                                                            std::int64_t count,
                                                            std::uint64_t seed);

}  // namespace stepsim
