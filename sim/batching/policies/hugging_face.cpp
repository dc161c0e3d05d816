#include "sim/batching/policies/hugging_face.h"

#include <algorithm>

#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/sharding.h"

namespace stepsim {
namespace {

SampleIds grouped_order(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t batch_size = parameters.integer("batch_size");
  return length_grouped_indices(torch_order(input),
                                input.lengths,
                                parameters.maybe_integer("group_batch_size").value_or(batch_size),
                                parameters.maybe_integer("mega_batch_mult"));
}

}  // namespace

std::int64_t usual_mega_batch_mult(std::int64_t samples, std::int64_t batch_size) {
  return std::max<std::int64_t>(1, std::min<std::int64_t>(samples / (4 * batch_size), 50));
}

SortWindow mega_batch(const PolicyParameters& parameters, std::int64_t samples) {
  const std::int64_t size =
      parameters.maybe_integer("group_batch_size").value_or(parameters.integer("batch_size"));
  const std::int64_t batches =
      parameters.maybe_integer("mega_batch_mult").value_or(usual_mega_batch_mult(samples, size));
  return {"mega_batch_mult", batches * size, size};
}

SampleIds length_grouped_indices(std::span<const std::int64_t> permutation,
                                 std::span<const std::int64_t> lengths,
                                 std::int64_t batch_size,
                                 std::optional<std::int64_t> mega_batch_mult) {
  const auto count = static_cast<std::int64_t>(permutation.size());
  Batches mega_batches =
      chunk(permutation,
            mega_batch_mult.value_or(usual_mega_batch_mult(count, batch_size)) * batch_size,
            false);
  SampleIds* longest = nullptr;
  const auto first_length = [lengths](const SampleIds& batch) {
    return lengths[static_cast<std::size_t>(batch.front())];
  };
  for (SampleIds& mega_batch : mega_batches) {
    sort_descending(mega_batch, lengths);
    if (longest == nullptr || first_length(mega_batch) > first_length(*longest)) {
      longest = &mega_batch;
    }
  }
  if (longest != nullptr) {
    std::swap(mega_batches.front().front(), longest->front());
  }
  SampleIds indices;
  indices.reserve(permutation.size());
  for (const SampleIds& mega_batch : mega_batches) {
    indices.insert(indices.end(), mega_batch.begin(), mega_batch.end());
  }
  return indices;
}

EpochBatches hf_group_by_length_epoch(const PolicyParameters& parameters,
                                      const PolicyInput& input) {
  AccelerateShard shard;
  shard.batch_size = parameters.integer("batch_size");
  shard.drop_last = input.sampler.drop_last;
  const SampleIds order = grouped_order(parameters, input);
  return accelerate_shards(chunk(order, shard.batch_size, shard.drop_last), input.ranks, shard);
}

std::vector<SampleIds> length_grouped_shares(SampleIds grouped, int ranks, bool drop_last) {
  fit_to_ranks(grouped, static_cast<std::size_t>(ranks), !drop_last);
  std::vector<SampleIds> shares(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < grouped.size(); ++i) {
    shares[i % shares.size()].push_back(grouped[i]);
  }
  return shares;
}

EpochBatches hf_length_grouped_sampler_epoch(const PolicyParameters& parameters,
                                             const PolicyInput& input) {
  const bool drop_last = input.sampler.drop_last;
  EpochBatches result;
  for (const SampleIds& share :
       length_grouped_shares(grouped_order(parameters, input), input.ranks, drop_last)) {
    result.push_back(chunk(share, parameters.integer("batch_size"), drop_last));
  }
  return result;
}

}  // namespace stepsim
