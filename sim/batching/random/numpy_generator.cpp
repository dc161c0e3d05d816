#include "sim/batching/random/numpy_generator.h"

#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>

#include "sim/batching/random/random.h"

namespace stepsim {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr Wide wide(std::uint64_t high, std::uint64_t low) {
  return (Wide{high} << 64U) | low;
}
constexpr std::uint64_t high(Wide value) {
  return static_cast<std::uint64_t>(value >> 64U);
}
constexpr std::uint64_t low(Wide value) {
  return static_cast<std::uint64_t>(value);
}

/// Spreads a seed over a pool of four words and draws 64-bit words from it.
class SeedSequence {
 public:
  explicit SeedSequence(std::uint64_t seed) {
    pool_[0] = static_cast<std::uint32_t>(seed);
    pool_[1] = static_cast<std::uint32_t>(seed >> 32U);
    for (auto& word : pool_) {
      word = hash(word);
    }
    for (std::size_t from = 0; from < pool_.size(); ++from) {
      for (std::size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) {
          pool_[to] = mix(pool_[to], hash(pool_[from]));
        }
      }
    }
  }

  template <std::size_t N>
  [[nodiscard]] std::array<std::uint64_t, N> words() const {
    std::array<std::uint64_t, N> result{};
    std::uint32_t multiplier = 0x8b51f9ddU;
    for (std::size_t i = 0; i < 2 * N; ++i) {
      std::uint32_t word = pool_[i % pool_.size()] ^ multiplier;
      multiplier *= 0x58f38dedU;
      word *= multiplier;
      word ^= word >> 16U;
      result[i / 2] |= std::uint64_t{word} << (i % 2 == 0 ? 0U : 32U);
    }
    return result;
  }

 private:
  std::uint32_t hash(std::uint32_t value) {
    value ^= multiplier_;
    multiplier_ *= 0x931e8875U;
    value *= multiplier_;
    return value ^ (value >> 16U);
  }
  static std::uint32_t mix(std::uint32_t x, std::uint32_t y) {
    const std::uint32_t mixed = 0xca01f9ddU * x - 0x4973f715U * y;
    return mixed ^ (mixed >> 16U);
  }

  std::array<std::uint32_t, 4> pool_{};
  std::uint32_t multiplier_ = 0x43b0d7e5U;
};

class Philox {
 public:
  explicit Philox(std::uint64_t seed) : key_(SeedSequence(seed).words<2>()) {}

  std::uint64_t operator()() {
    if (next_ == block_.size()) {
      ++counter_;
      fill();
      next_ = 0;
    }
    return block_[next_++];
  }

 private:
  void fill() {
    std::array<std::uint64_t, 4> c = {counter_, 0, 0, 0};
    auto key = key_;
    for (int round = 0; round < 10; ++round) {
      const Wide first = Wide{0xd2e7470ee14c6c93U} * c[0];
      const Wide second = Wide{0xca5a826395121157U} * c[2];
      c = {high(second) ^ c[1] ^ key[0], low(second), high(first) ^ c[3] ^ key[1], low(first)};
      key[0] += 0x9e3779b97f4a7c15U;
      key[1] += 0xbb67ae8584caa73bU;
    }
    block_ = c;
  }

  std::array<std::uint64_t, 2> key_;
  std::uint64_t counter_ = 0;  ///< The low of four words; a plan never reaches the others.
  std::array<std::uint64_t, 4> block_{};
  std::size_t next_ = 4;
};

class Pcg64 {
 public:
  explicit Pcg64(std::uint64_t seed) {
    const auto words = SeedSequence(seed).words<4>();
    increment_ = (wide(words[2], words[3]) << 1U) | 1U;
    step();
    state_ += wide(words[0], words[1]);
    step();
  }

  std::uint64_t operator()() {
    step();
    return std::rotr(high(state_) ^ low(state_), static_cast<int>(state_ >> 122U));
  }

 private:
  void step() { state_ = state_ * wide(0x2360ed051fc65da4U, 0x4385df649fccf645U) + increment_; }

  Wide state_ = 0;
  Wide increment_ = 0;
};

/// Shuffles with 32-bit draws: each 64-bit draw gives its low half, then its high half.
template <typename Generator>
void shuffle(std::span<std::int64_t> items, Generator generator) {
  std::uint64_t drawn = 0;
  bool has_half = false;
  shuffle_masked(items, [&] {
    drawn = has_half ? drawn >> 32U : generator();
    has_half = !has_half;
    return static_cast<std::uint32_t>(drawn);
  });
}

}  // namespace

std::vector<std::int64_t> generator_permutation(BitGenerator generator,
                                                std::int64_t n,
                                                std::uint64_t seed) {
  if (n < 0 || n > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument("generator_permutation: n is outside 0 .. 2^32 - 1");
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (generator == BitGenerator::Philox) {
    shuffle(order, Philox(seed));
  } else {
    shuffle(order, Pcg64(seed));
  }
  return order;
}

}  // namespace stepsim
