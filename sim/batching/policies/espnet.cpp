#include "sim/batching/policies/espnet.h"

#include <algorithm>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/random/random.h"
#include "sim/batching/sharding.h"

namespace stepsim {
namespace {

/// Sizes of the batches of ascending samples.
SampleIds batch_sizes(std::span<const std::int64_t> ascending,
                      std::span<const std::int64_t> lengths,
                      const EspnetNumel& options) {
  SampleIds sizes;
  std::int64_t size = 0;
  std::int64_t sum = 0;
  for (const std::int64_t sample : ascending) {
    const std::int64_t length = lengths[static_cast<std::size_t>(sample)];
    ++size;
    sum += length;
    const std::int64_t bins = (options.padding ? size * length : sum) * options.feature_dim;
    if (bins > options.batch_bins && size >= options.min_batch_size) {
      sizes.push_back(size);
      size = sum = 0;
    }
  }
  if (size > 0 && (!options.drop_last || sizes.empty())) {
    sizes.push_back(size);
  }
  return sizes;
}

/// Dissolves a last batch that is too small: the others grow by one each, from the back.
void dissolve_short_batch(SampleIds& sizes, std::int64_t min_batch_size) {
  if (sizes.size() < 2 || sizes.back() >= min_batch_size) {
    return;
  }
  const auto left = static_cast<std::size_t>(sizes.back());
  sizes.pop_back();
  for (std::size_t i = 0; i < left; ++i) {
    ++sizes[sizes.size() - 1 - i % sizes.size()];
  }
}

}  // namespace

Batches espnet_numel(std::span<const std::int64_t> lengths, const EspnetNumel& options) {
  SampleIds ascending = all_samples(lengths.size());
  sort_by_length(ascending, lengths);
  SampleIds sizes = batch_sizes(ascending, lengths, options);
  dissolve_short_batch(sizes, options.min_batch_size);

  Batches batches;
  auto begin = ascending.begin();
  for (const std::int64_t size : sizes) {
    SampleIds& batch = batches.emplace_back(begin, begin + size);
    if (options.descending_in_batch) {
      std::ranges::reverse(batch);
    }
    begin += size;
  }
  if (options.descending_batches) {
    std::ranges::reverse(batches);
  }
  return batches;
}

EpochBatches espnet_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  EspnetNumel options;
  options.batch_bins = parameters.integer("batch_bins");
  options.feature_dim = parameters.integer("feature_dim");
  options.min_batch_size =
      std::max<std::int64_t>(parameters.integer("min_batch_size"), input.ranks);
  options.padding = parameters.flag("padding");
  options.drop_last = input.sampler.drop_last;
  options.descending_in_batch = parameters.text("sort_in_batch") == "descending";
  options.descending_batches = parameters.text("sort_batch") == "descending";
  Batches batches = espnet_numel(input.lengths, options);
  if (input.sampler.shuffle) {
    const std::uint64_t seed = input.sampler.seed + static_cast<std::uint64_t>(input.epoch) + 1;
    NumpyRandom(static_cast<std::uint32_t>(seed)).shuffle(std::span(batches));
  }
  return strided_samples(batches, input.ranks);
}

}  // namespace stepsim
