#include "sim/batching/random.h"

#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace stepsim {
namespace {

constexpr std::size_t kStateWords = std::mt19937::state_size;
using State = std::array<std::uint32_t, kStateWords>;

/// init_genrand of the Mersenne Twister's authors (mt19937ar.c, 2002).
State state_from_word(std::uint32_t seed) {
  State state{};
  state[0] = seed;
  for (std::uint32_t i = 1; i < kStateWords; ++i) {
    state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30U)) + i;
  }
  return state;
}

/// init_by_array of the same source; `key` is not empty.
State state_from_key(std::span<const std::uint32_t> key) {
  State state = state_from_word(19650218U);
  std::size_t i = 1;
  const auto advance = [&state, &i] {
    if (++i >= kStateWords) {
      state[0] = state[kStateWords - 1];
      i = 1;
    }
  };
  std::size_t j = 0;
  for (std::size_t k = kStateWords; k > 0; --k) {
    const std::uint32_t previous = state[i - 1] ^ (state[i - 1] >> 30U);
    state[i] = (state[i] ^ (previous * 1664525U)) + key[j] + static_cast<std::uint32_t>(j);
    advance();
    j = j + 1 == key.size() ? 0 : j + 1;
  }
  for (std::size_t k = kStateWords - 1; k > 0; --k) {
    const std::uint32_t previous = state[i - 1] ^ (state[i - 1] >> 30U);
    state[i] = (state[i] ^ (previous * 1566083941U)) - static_cast<std::uint32_t>(i);
    advance();
  }
  state[0] = 0x80000000U;
  return state;
}

/// Hands a finished state to std::mt19937, which copies what a seed sequence generates.
class StateSequence {
 public:
  using result_type = std::uint32_t;  // NOLINT(readability-identifier-naming): the standard's name
  explicit StateSequence(std::uint64_t seed) {
    const std::array<std::uint32_t, 2> words = {static_cast<std::uint32_t>(seed),
                                                static_cast<std::uint32_t>(seed >> 32U)};
    state_ = state_from_key(std::span(words).first(words[1] == 0 ? 1 : 2));
  }
  template <typename Iterator>
  void generate(Iterator begin, Iterator end) const {
    for (std::size_t i = 0; begin != end; ++begin, ++i) {
      *begin = state_[i];
    }
  }

 private:
  State state_{};
};

std::mt19937 python_generator(std::uint64_t seed) {
  StateSequence sequence(seed);
  return std::mt19937(sequence);
}

}  // namespace

PythonRandom::PythonRandom(std::uint64_t seed) : generator_(python_generator(seed)) {}

double PythonRandom::random() {
  const double high = next_u32() >> 5U;
  const double low = next_u32() >> 6U;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

double PythonRandom::uniform(double low, double high) {
  return low + (high - low) * random();
}

std::uint64_t PythonRandom::below(std::uint64_t n) {
  if (n == 0 || n > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument("PythonRandom::below: n is outside 1 .. 2^32 - 1");
  }
  return draw_below(static_cast<std::uint32_t>(n));
}

std::vector<std::int64_t> numpy_permutation(std::int64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  NumpyRandom(static_cast<std::uint32_t>(seed)).shuffle(std::span(order));
  return order;
}

std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed) {
  if (n < 0 || n >= std::numeric_limits<std::uint32_t>::max() / 20) {
    throw std::invalid_argument("torch_randperm: n is outside 0 .. 2^32 / 20");
  }
  std::mt19937 generator(static_cast<std::uint32_t>(seed));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    std::swap(order[i], order[i + generator() % (order.size() - i)]);
  }
  return order;
}

}  // namespace stepsim
