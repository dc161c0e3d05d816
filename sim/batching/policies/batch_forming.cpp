#include "sim/batching/policies/batch_forming.h"

#include <algorithm>

namespace stepsim {

std::vector<RankOrder> rank_shares(const PolicyInput& input) {
  const auto count = static_cast<std::int64_t>(input.lengths.size());
  return rank_orders(input.sampler, count, input.ranks, input.epoch);
}

Batches chunk(std::span<const std::int64_t> samples, std::int64_t batch_size, bool drop_last) {
  const auto size = static_cast<std::size_t>(batch_size);
  Batches batches;
  for (std::size_t begin = 0; begin < samples.size(); begin += size) {
    const auto part = samples.subspan(begin, std::min(size, samples.size() - begin));
    if (part.size() == size || !drop_last) {
      batches.emplace_back(part.begin(), part.end());
    }
  }
  return batches;
}

std::vector<std::int64_t> sample_order(const PolicyInput& input) {
  const auto count = static_cast<std::int64_t>(input.lengths.size());
  SamplerSpec whole = input.sampler;
  whole.drop_last = false;
  return rank_order(whole, count, 1, 0, input.epoch).samples;
}

std::vector<std::int64_t> torch_order(const PolicyInput& input) {
  const auto count = static_cast<std::int64_t>(input.lengths.size());
  if (input.sampler.shuffle) {
    return torch_randperm(count, input.sampler.seed + static_cast<std::uint64_t>(input.epoch));
  }
  return all_samples(input.lengths.size());
}

Batches fill_padded(std::span<const std::int64_t> samples,
                    std::span<const std::int64_t> lengths,
                    std::int64_t max_tokens,
                    std::optional<std::int64_t> max_batch_size) {
  Batches batches;
  std::vector<std::int64_t> current;
  std::int64_t longest = 0;
  for (const std::int64_t sample : samples) {
    const std::int64_t length = lengths[static_cast<std::size_t>(sample)];
    const auto rows = static_cast<std::int64_t>(current.size()) + 1;
    longest = std::max(longest, length);
    if (!current.empty() && (longest * rows > max_tokens || rows > max_batch_size.value_or(rows))) {
      batches.push_back(current);
      current.clear();
      longest = length;
    }
    current.push_back(sample);
  }
  if (!current.empty()) {
    batches.push_back(current);
  }
  return batches;
}

}  // namespace stepsim
