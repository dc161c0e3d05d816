#include "sim/batching/policies/rank_local.h"

#include <cstdint>
#include <span>

#include "sim/batching/policies/batch_forming.h"

namespace stepsim {

EpochBatches fixed_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return form_shares(input, [&](RankOrder share) {
    return chunk(share.samples, parameters.integer("batch_size"), input.sampler.drop_last);
  });
}

EpochBatches bucketed_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return form_shares(input, [&](RankOrder share) {
    sort_by_length(share.samples, input.lengths);
    auto batches = chunk(share.samples, parameters.integer("batch_size"), input.sampler.drop_last);
    if (input.sampler.shuffle) {
      share.random.shuffle(std::span(batches));
    }
    return batches;
  });
}

EpochBatches token_budget_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return form_shares(input, [&](RankOrder share) {
    sort_by_length(share.samples, input.lengths);
    auto batches = fill_padded(share.samples, input.lengths, parameters.integer("max_tokens"));
    if (input.sampler.shuffle) {
      share.random.shuffle(std::span(batches));
    }
    return batches;
  });
}

EpochBatches local_sort_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const bool shuffles = parameters.text("order") == "independent_shuffles";
  const auto epoch = static_cast<std::uint64_t>(input.epoch);
  const auto ranks = static_cast<std::uint64_t>(input.ranks);
  std::uint64_t rank = 0;
  return form_shares(input, [&](RankOrder share) {
    sort_by_length(share.samples, input.lengths);
    auto batches = chunk(share.samples, parameters.integer("batch_size"), input.sampler.drop_last);
    PythonRandom own(input.sampler.seed + epoch * ranks + rank++);
    if (shuffles) {
      own.shuffle(std::span(batches));
    }
    return batches;
  });
}

EpochBatches local_token_budget_epoch(const PolicyParameters& parameters,
                                      const PolicyInput& input) {
  return form_shares(input, [&](RankOrder share) {
    if (parameters.flag("sort")) {
      sort_by_length(share.samples, input.lengths);
    }
    return fill_padded(share.samples, input.lengths, parameters.integer("max_tokens"));
  });
}

}  // namespace stepsim
