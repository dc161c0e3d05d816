#include "sim/batching/length_summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace stepsim {

namespace {

constexpr std::size_t kBatch = 8;
constexpr std::int64_t kHistogramBars = 16;

double padding_of(const std::vector<std::int64_t>& lengths) {
  double useful = 0;
  double padded = 0;
  for (std::size_t first = 0; first < lengths.size(); first += kBatch) {
    const auto begin = lengths.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = std::min(kBatch, lengths.size() - first);
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    useful += static_cast<double>(std::accumulate(begin, end, std::int64_t{0}));
    padded += static_cast<double>(*std::max_element(begin, end)) * static_cast<double>(count);
  }
  return 1 - useful / padded;
}

/// Bars whose widths double, from the shortest length on; the first width is such that
/// kHistogramBars reach the longest.
std::vector<LengthBar> bars_of(const std::vector<std::int64_t>& sorted, double tokens) {
  std::vector<LengthBar> bars;
  std::int64_t width = 1;
  while (width * ((std::int64_t{1} << kHistogramBars) - 1) <= sorted.back() - sorted.front()) {
    width *= 2;
  }
  auto from = sorted.begin();
  std::int64_t low = sorted.front();
  while (low <= sorted.back()) {
    LengthBar bar{low, std::min(low + width - 1, sorted.back()), 0, 0};
    const auto to = std::upper_bound(from, sorted.end(), bar.high);
    bar.samples = to - from;
    bar.token_share = static_cast<double>(std::accumulate(from, to, std::int64_t{0})) / tokens;
    bars.push_back(bar);
    from = to;
    low = bar.high + 1;
    width *= 2;
  }
  return bars;
}

}  // namespace

LengthSummary summarise_lengths(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) {
    throw std::invalid_argument("lengths: none");
  }
  LengthSummary summary;
  summary.padding_in_random_batches = padding_of(lengths);
  std::ranges::sort(lengths);
  const auto count = static_cast<double>(lengths.size());
  summary.samples = static_cast<std::int64_t>(lengths.size());
  summary.tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  summary.shortest = lengths.front();
  summary.longest = lengths.back();
  summary.mean = static_cast<double>(summary.tokens) / count;
  double squares = 0;
  for (const std::int64_t length : lengths) {
    squares +=
        (static_cast<double>(length) - summary.mean) * (static_cast<double>(length) - summary.mean);
  }
  summary.std = std::sqrt(squares / count);
  for (const double percent : {1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9}) {
    const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * count));
    summary.percentiles.emplace_back(percent, lengths[std::max<std::size_t>(rank, 1) - 1]);
  }
  const auto tail = static_cast<std::ptrdiff_t>(std::ceil(count / 100));
  summary.longest_percent_tokens =
      static_cast<double>(std::accumulate(lengths.end() - tail, lengths.end(), std::int64_t{0})) /
      static_cast<double>(summary.tokens);
  summary.bars = bars_of(lengths, static_cast<double>(summary.tokens));
  return summary;
}

}  // namespace stepsim
