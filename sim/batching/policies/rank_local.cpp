#include "sim/batching/policies/rank_local.h"

#include <algorithm>

#include "costmodel/base/mapped.h"
#include "sim/batching/policies/batch_forming.h"

namespace stepsim {

EpochBatches fixed_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return mapped(rank_shares(input), [&](const auto& share) {
    return chunk(share.samples, parameters.integer("batch_size"), input.sampler.drop_last);
  });
}

EpochBatches bucketed_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  EpochBatches result;
  for (auto& share : rank_shares(input)) {
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
  for (auto& share : rank_shares(input)) {
    sort_by_length(share.samples, input.lengths);
    auto batches = fill_padded(share.samples, input.lengths, parameters.integer("max_tokens"));
    if (input.sampler.shuffle) {
      share.random.shuffle(std::span(batches));
    }
    result.push_back(std::move(batches));
  }
  return result;
}

EpochBatches local_sort_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const bool shuffles = parameters.text("order") == "independent_shuffles";
  EpochBatches result;
  for (auto& share : rank_shares(input)) {
    sort_by_length(share.samples, input.lengths);
    auto batches = chunk(share.samples, parameters.integer("batch_size"), input.sampler.drop_last);
    if (shuffles) {
      const auto epoch = static_cast<std::uint64_t>(input.epoch);
      const auto ranks = static_cast<std::uint64_t>(input.ranks);
      PythonRandom own(input.sampler.seed + epoch * ranks + result.size());
      own.shuffle(std::span(batches));
    }
    result.push_back(std::move(batches));
  }
  return result;
}

EpochBatches local_token_budget_epoch(const PolicyParameters& parameters,
                                      const PolicyInput& input) {
  EpochBatches result;
  for (auto& share : rank_shares(input)) {
    if (parameters.flag("sort")) {
      sort_by_length(share.samples, input.lengths);
    }
    result.push_back(fill_padded(share.samples, input.lengths, parameters.integer("max_tokens")));
  }
  return result;
}

}  // namespace stepsim
