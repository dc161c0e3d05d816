#include "sim/batching/random/mersenne_twister.h"

namespace stepsim {
namespace {

constexpr std::size_t kShift = 397;

std::uint32_t twist(std::uint32_t high, std::uint32_t low) {
  const std::uint32_t mixed = (high & 0x80000000U) | (low & 0x7fffffffU);
  return (mixed >> 1U) ^ ((low & 1U) != 0 ? 0x9908b0dfU : 0U);
}

std::uint32_t tempered(std::uint32_t word) {
  word ^= word >> 11U;
  word ^= (word << 7U) & 0x9d2c5680U;
  word ^= (word << 15U) & 0xefc60000U;
  return word ^ (word >> 18U);
}

}  // namespace

MersenneTwister::MersenneTwister(std::uint32_t seed) {
  state_[0] = seed;
  for (std::uint32_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30U)) + i;
  }
}

MersenneTwister::MersenneTwister(std::span<const std::uint32_t> key) : MersenneTwister(19650218U) {
  std::size_t i = 1;
  const auto advance = [this, &i] {
    if (++i >= kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  std::size_t j = 0;
  for (std::size_t k = kWords; k > 0; --k) {
    const std::uint32_t previous = state_[i - 1] ^ (state_[i - 1] >> 30U);
    state_[i] = (state_[i] ^ (previous * 1664525U)) + key[j] + static_cast<std::uint32_t>(j);
    advance();
    j = j + 1 == key.size() ? 0 : j + 1;
  }
  for (std::size_t k = kWords - 1; k > 0; --k) {
    const std::uint32_t previous = state_[i - 1] ^ (state_[i - 1] >> 30U);
    state_[i] = (state_[i] ^ (previous * 1566083941U)) - static_cast<std::uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000U;
}

void MersenneTwister::refill() {
  // Three loops whose iterations do not depend on each other within a vector's width.
  for (std::size_t i = 0; i < kWords - kShift; ++i) {
    state_[i] = state_[i + kShift] ^ twist(state_[i], state_[i + 1]);
  }
  for (std::size_t i = kWords - kShift; i < kWords - 1; ++i) {
    state_[i] = state_[i + kShift - kWords] ^ twist(state_[i], state_[i + 1]);
  }
  state_[kWords - 1] = state_[kShift - 1] ^ twist(state_[kWords - 1], state_[0]);
  for (std::size_t i = 0; i < kWords; ++i) {
    drawn_[i] = tempered(state_[i]);
  }
  next_ = 0;
}

}  // namespace stepsim
