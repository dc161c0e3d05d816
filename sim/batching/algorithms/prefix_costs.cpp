#include <algorithm>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/min_max.h"

namespace stepsim {

PrefixCosts padded_token_costs(std::span<const std::int64_t> lengths) {
  PrefixCosts costs;
  costs.reserve(lengths.size());
  std::int64_t longest = 0;
  for (const std::int64_t length : lengths) {
    longest = std::max(longest, length);
    costs.push_back(longest * (static_cast<std::int64_t>(costs.size()) + 1));
  }
  return costs;
}

PrefixCosts squared_token_costs(std::span<const std::int64_t> lengths) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  PrefixCosts costs = padded_token_costs(lengths);
  for (auto& cost : costs) {
    if (cost >= kLimit) {
      throw InputError(
          "{} padded tokens on one rank: their square is too large a cost; below {} it is possible",
          cost,
          kLimit);
    }
    cost *= cost;
  }
  return costs;
}

PrefixCosts shape_costs(std::span<const std::int64_t> lengths,
                        const std::function<std::int64_t(const BatchShape&)>& cost) {
  PrefixCosts costs;
  costs.reserve(lengths.size());
  BatchShape shape;
  for (const std::int64_t length : lengths) {
    ++shape.samples;
    shape.max_length = std::max(shape.max_length, length);
    shape.useful_tokens += length;
    shape.sum_squares += static_cast<double>(length) * static_cast<double>(length);
    costs.push_back(std::max(cost(shape), costs.empty() ? 1 : costs.back() + 1));
  }
  return costs;
}

}  // namespace stepsim
