#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace stepsim {

/// MT19937, the same stream as std::mt19937 at less than half the time: words are made and
/// tempered 624 at once. Shuffles of millions of samples are mostly this.
///
/// Source: Matsumoto and Nishimura, mt19937ar.c (2002).
class MersenneTwister {
 public:
  explicit MersenneTwister(std::uint32_t seed);                  ///< init_genrand, as std::mt19937.
  explicit MersenneTwister(std::span<const std::uint32_t> key);  ///< init_by_array; key not empty.

  std::uint32_t operator()() {
    if (next_ == drawn_.size()) {
      refill();
    }
    return drawn_[next_++];
  }

 private:
  static constexpr std::size_t kWords = 624;

  void refill();

  std::array<std::uint32_t, kWords> state_{};
  std::array<std::uint32_t, kWords> drawn_{};
  std::size_t next_ = kWords;
};

}  // namespace stepsim
