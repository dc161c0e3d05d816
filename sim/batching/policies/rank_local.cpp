// Policies in which every rank forms batches of its own share of the samples.
#include <algorithm>

#include "sim/batching/policies/policies.h"

namespace stepsim {
namespace {

std::vector<RankOrder> shares(const PolicyInput& input) {
  const auto count = static_cast<std::int64_t>(input.lengths.size());
  return rank_orders(input.sampler, count, input.ranks, input.epoch);
}

}  // namespace

EpochBatches fixed_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  EpochBatches result;
  for (const auto& share : shares(input)) {
    result.push_back(
        chunk(share.samples, parameters.integer("batch_size"), input.sampler.drop_last));
  }
  return result;
}

EpochBatches bucketed_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  EpochBatches result;
  for (auto& share : shares(input)) {
    sort_by_length(share.samples, input.lengths);
    auto batches = chunk(share.samples, parameters.integer("batch_size"), input.sampler.drop_last);
    if (input.sampler.shuffle) {
      share.random.shuffle(std::span(batches));
    }
    result.push_back(std::move(batches));
  }
  return result;
}

EpochBatches token_budget_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  EpochBatches result;
  for (auto& share : shares(input)) {
    sort_by_length(share.samples, input.lengths);
    auto batches = fill_padded(share.samples, input.lengths, parameters.integer("max_tokens"));
    if (input.sampler.shuffle) {
      share.random.shuffle(std::span(batches));
    }
    result.push_back(std::move(batches));
  }
  return result;
}

}  // namespace stepsim
