#include "sim/batching/random/random.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <unordered_map>

namespace stepsim {
namespace {

/// Refuses counts that are too large for torch's 32-bit draws; a negative count is among them,
/// since it wraps to a huge one.
void check_torch_count(std::uint64_t n) {
  if (n >= std::numeric_limits<std::uint32_t>::max() / 20) {
    throw std::invalid_argument("torch_randperm: n is outside 0 .. 2^32 / 20");
  }
}

/// The seed as 32-bit words, low first, without a high word of zero.
MersenneTwister python_generator(std::uint64_t seed) {
  const std::array<std::uint32_t, 2> words = {static_cast<std::uint32_t>(seed),
                                              static_cast<std::uint32_t>(seed >> 32U)};
  return MersenneTwister(std::span(words).first(words[1] == 0 ? 1 : 2));
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

double PythonRandom::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - random()));
  return radius * std::cos(2.0 * std::numbers::pi * random());
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
  check_torch_count(static_cast<std::uint64_t>(n));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  MersenneTwister generator(static_cast<std::uint32_t>(seed));
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    std::swap(order[i], order[i + generator() % (order.size() - i)]);
  }
  return order;
}

std::vector<std::int64_t> torch_randperm_head(std::int64_t n,
                                              std::int64_t count,
                                              std::uint64_t seed) {
  constexpr std::int64_t kFew = 16;
  if (count > n / kFew) {
    std::vector<std::int64_t> order = torch_randperm(n, seed);
    order.resize(static_cast<std::size_t>(count));
    return order;
  }
  check_torch_count(static_cast<std::uint64_t>(n));
  MersenneTwister generator(static_cast<std::uint32_t>(seed));
  std::unordered_map<std::int64_t, std::int64_t> moved;  // What lies where another one began.
  const auto at = [&moved](std::int64_t place) {
    const auto found = moved.find(place);
    return found != moved.end() ? found->second : place;
  };
  std::vector<std::int64_t> head;
  head.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t other = i + generator() % (n - i);
    head.push_back(at(other));
    moved[other] = at(i);
  }
  return head;
}

}  // namespace stepsim
