#include "sim/batching/algorithms/prefix_selection.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stepsim {
namespace {

/// A rank's costs that may still be the wanted one: [begin, end) of its row.
struct Window {
  std::uint32_t begin = 1;
  std::uint32_t end = 1;
};

constexpr std::size_t kSampledRanks = 64;

/// Two costs that most probably enclose the `count`-th smallest of `total`, from a sample of ranks.
std::pair<std::int64_t, std::int64_t> bracket(std::span<const PrefixCosts> costs,
                                              std::int64_t count,
                                              std::int64_t total) {
  std::vector<std::int64_t> sample;
  const std::size_t stride = std::max<std::size_t>(1, costs.size() / kSampledRanks);
  for (std::size_t rank = stride / 2; rank < costs.size(); rank += stride) {
    sample.insert(sample.end(), costs[rank].begin() + 1, costs[rank].end());
  }
  if (sample.empty()) {
    return {0, costs.front().back()};
  }
  const auto size = static_cast<double>(sample.size());
  const double middle = size * static_cast<double>(count) / static_cast<double>(total);
  const auto at = [&](double place) {
    const auto nth = sample.begin() + static_cast<std::ptrdiff_t>(std::clamp(place, 0., size - 1));
    std::nth_element(sample.begin(), nth, sample.end());
    return *nth;
  };
  // The sample holds whole rows, so its quantiles err by a few ranks' shares, not by single costs.
  const double margin = 2 * std::sqrt(middle) + 1;
  return {at(middle - margin), at(middle + margin)};
}

/// The `count`-th smallest of all costs inside the windows.
std::int64_t select(std::span<const PrefixCosts> costs,
                    std::span<const Window> windows,
                    std::int64_t count) {
  std::vector<std::int64_t> inside;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    const auto begin = costs[rank].begin();
    inside.insert(inside.end(), begin + windows[rank].begin, begin + windows[rank].end);
  }
  const auto nth = inside.begin() + (count - 1);
  std::nth_element(inside.begin(), nth, inside.end());
  return *nth;
}

}  // namespace

PrefixSelection select_prefixes(std::span<const PrefixCosts> costs, std::int64_t count) {
  PrefixSelection result;
  result.sizes.assign(costs.size(), 1);
  if (count == 0) {
    return result;
  }
  std::vector<Window> windows(costs.size());
  std::int64_t total = 0;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    windows[rank].end = static_cast<std::uint32_t>(costs[rank].size());
    total += windows[rank].end - 1;
  }
  std::int64_t wanted = count;
  if (costs.size() > 2 * kSampledRanks) {
    const auto [low, high] = bracket(costs, count, total);
    std::vector<Window> narrow(costs.size());
    std::int64_t below = 0;
    std::int64_t up_to = 0;
    for (std::size_t rank = 0; rank < costs.size(); ++rank) {
      const auto begin = costs[rank].begin();
      const auto first = std::lower_bound(begin + 1, costs[rank].end(), low);
      const auto last = std::upper_bound(first, costs[rank].end(), high);
      narrow[rank] = {static_cast<std::uint32_t>(first - begin),
                      static_cast<std::uint32_t>(last - begin)};
      below += first - begin - 1;
      up_to += last - begin - 1;
    }
    if (below < count && count <= up_to) {
      windows = std::move(narrow);
      wanted -= below;
    }
  }
  result.dearest = select(costs, windows, wanted);
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    const auto begin = costs[rank].begin();
    result.sizes[rank] =
        std::upper_bound(begin + windows[rank].begin, begin + windows[rank].end, result.dearest) -
        begin;
  }
  return result;
}

}  // namespace stepsim
