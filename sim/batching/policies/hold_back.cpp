#include "sim/batching/policies/hold_back.h"

#include <algorithm>

#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"

namespace stepsim {
namespace {

/// What random.sample(batches, len(batches)) returns, when it draws from a list of the items.
void sample_all(Batches& batches, PythonRandom& random) {
  Batches left = std::move(batches);
  batches.clear();
  while (!left.empty()) {
    const auto drawn = static_cast<std::size_t>(random.below(left.size()));
    batches.push_back(std::move(left[drawn]));
    left[drawn] = std::move(left.back());
    left.pop_back();
  }
}

/// How many samples a batch of `size` samples gives back.
std::int64_t held_back(std::int64_t size, std::int64_t used, const HoldBack& options) {
  const std::int64_t over = used > options.batch_size ? 1 : 0;
  return over + (size - over) % options.multiple;
}

}  // namespace

Batches fill_holding_back(std::span<const std::int64_t> order,
                          std::span<const std::int64_t> lengths,
                          const HoldBack& options) {
  Batches batches;
  SampleIds batch;
  std::int64_t longest = 0;
  for (const std::int64_t sample : order) {
    batch.push_back(sample);
    longest = std::max(longest, lengths[static_cast<std::size_t>(sample)]);
    const auto size = static_cast<std::int64_t>(batch.size());
    const std::int64_t used = options.by_tokens ? size * longest : size;
    if (used < options.batch_size) {
      continue;
    }
    const std::int64_t back = held_back(size, used, options);
    if (back == size) {
      continue;
    }
    SampleIds kept(batch.end() - back, batch.end());
    batch.resize(static_cast<std::size_t>(size - back));
    batches.push_back(std::move(batch));
    batch = std::move(kept);
    longest = 0;
    for (const std::int64_t held : batch) {
      longest = std::max(longest, lengths[static_cast<std::size_t>(held)]);
    }
  }
  if (!batch.empty()) {
    batches.push_back(std::move(batch));
  }
  return batches;
}

EpochBatches opennmt_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const HoldBack options = {parameters.integer("batch_size"),
                            parameters.text("batch_type") == "tokens",
                            parameters.integer("batch_size_multiple")};
  EpochBatches result;
  for (auto& share : rank_shares(input)) {
    Batches batches;
    for (SampleIds& bucket : chunk(share.samples, parameters.integer("bucket_size"), false)) {
      sort_by_length(bucket, input.lengths);
      Batches filled = fill_holding_back(bucket, input.lengths, options);
      if (input.sampler.shuffle) {
        share.random.shuffle(std::span(filled));
      }
      std::move(filled.begin(), filled.end(), std::back_inserter(batches));
    }
    result.push_back(std::move(batches));
  }
  return result;
}

std::vector<Batches> torchtext_pools(std::span<const std::int64_t> order,
                                     std::span<const std::int64_t> lengths,
                                     const HoldBack& options,
                                     bool sort_within_batch) {
  constexpr std::int64_t kBatchesPerPool = 100;
  HoldBack pool_options = options;
  pool_options.batch_size *= kBatchesPerPool;
  std::vector<Batches> pools;
  for (SampleIds& pool : fill_holding_back(order, lengths, pool_options)) {
    if (sort_within_batch) {
      sort_by_length(pool, lengths);
    }
    pools.push_back(fill_holding_back(pool, lengths, options));
  }
  return pools;
}

EpochBatches torchtext_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const bool by_tokens = parameters.text("batch_type") == "tokens";
  const HoldBack options = {parameters.integer("batch_size"), by_tokens, 1};
  EpochBatches result;
  for (auto& share : rank_shares(input)) {
    Batches batches;
    for (Batches& pool : torchtext_pools(
             share.samples, input.lengths, options, parameters.flag("sort_within_batch"))) {
      if (input.sampler.shuffle) {
        sample_all(pool, share.random);
      }
      std::move(pool.begin(), pool.end(), std::back_inserter(batches));
    }
    result.push_back(std::move(batches));
  }
  return result;
}

std::optional<double> batch_size_in_tokens(const PolicyParameters& parameters) {
  return parameters.text("batch_type") == "tokens" ? parameters.maybe_number("batch_size")
                                                   : std::nullopt;
}

}  // namespace stepsim
