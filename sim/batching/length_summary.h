#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace stepsim {

/// One bar of a histogram over lengths: lengths in low .. high (both included).
struct LengthBar {
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::int64_t samples = 0;
  double token_share = 0;  ///< The share of all tokens that these samples hold.
};

/// The distribution of a list of lengths. A percentile is the smallest length that so many percent
/// of the samples do not exceed.
struct LengthSummary {
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t shortest = 0;
  std::int64_t longest = 0;
  double mean = 0;
  double std = 0;                                            ///< The population standard deviation.
  std::vector<std::pair<double, std::int64_t>> percentiles;  ///< (percent, length)
  double padding_in_random_batches = 0;  ///< The share of padding in batches of 8, in file order.
  double longest_percent_tokens = 0;     ///< The share of tokens in the longest 1 % of samples.
  std::vector<LengthBar> bars;           ///< At most 16, each twice as wide as the one before.
};

/// Throws std::invalid_argument: no lengths.
[[nodiscard]] LengthSummary summarise_lengths(std::vector<std::int64_t> lengths);

}  // namespace stepsim
