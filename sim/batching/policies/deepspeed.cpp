#include "sim/batching/policies/deepspeed.h"

#include <algorithm>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/random/random.h"
#include "sim/batching/sharding.h"

namespace stepsim {
namespace {

/// The farthest end of `slices` micro-batches from `begin` on; `begin` when there is none.
///
/// Sums and sizes only grow, so the search ends at the first end that is above a limit.
std::size_t farthest_end(std::span<const std::int64_t> samples,
                         std::span<const std::int64_t> lengths,
                         std::size_t begin,
                         std::size_t slices,
                         const DeepspeedBatching& options) {
  std::size_t best = begin;
  std::vector<std::int64_t> sums(slices, 0);
  for (std::size_t end = begin + slices; end < samples.size(); end += slices) {
    const auto size = static_cast<std::int64_t>((end - begin) / slices);
    for (std::size_t k = 0; k < slices; ++k) {
      sums[k] += lengths[static_cast<std::size_t>(samples[end - slices + k])];
    }
    if (*std::ranges::max_element(sums) > options.max_tokens ||
        size > options.max_batch_size.value_or(size)) {
      break;
    }
    if (size >= options.min_batch_size) {
      best = end;
    }
  }
  return best;
}

SampleIds order_of(const std::string& picking, const PolicyInput& input) {
  if (picking == "seqlen") {
    return deepspeed_seqlen_order(input.lengths);
  }
  SampleIds order = all_samples(input.lengths.size());
  if (picking == "random") {
    PythonRandom(input.sampler.seed).shuffle(std::span(order));
  }
  return order;
}

}  // namespace

Batches deepspeed_batch_by_seqlens(std::span<const std::int64_t> order,
                                   std::span<const std::int64_t> lengths,
                                   const DeepspeedBatching& options) {
  SampleIds samples;
  std::copy_if(order.begin(), order.end(), std::back_inserter(samples), [&](std::int64_t sample) {
    return lengths[static_cast<std::size_t>(sample)] <= options.max_tokens;
  });
  const auto step = static_cast<std::size_t>(options.effective_batch_size);
  const std::size_t slices = options.same_size ? step : 1;
  Batches batches;
  for (std::size_t begin = 0;;) {
    const std::size_t end = farthest_end(samples, lengths, begin, slices, options);
    if (end == begin) {
      break;
    }
    for (std::size_t k = 0; k < slices; ++k) {
      SampleIds& batch = batches.emplace_back();
      for (std::size_t i = begin + k; i < end; i += slices) {
        batch.push_back(samples[i]);
      }
    }
    begin = end;
  }
  batches.resize(batches.size() / step * step);
  return batches;
}

SampleIds deepspeed_seqlen_order(std::span<const std::int64_t> lengths) {
  SampleIds order = all_samples(lengths.size());
  sort_by_length(order, lengths);
  return order;
}

EpochBatches deepspeed_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  DeepspeedBatching options;
  options.max_tokens = parameters.integer("max_tokens");
  options.effective_batch_size =
      parameters.maybe_integer("effective_batch_size").value_or(input.ranks);
  options.same_size = parameters.flag("required_microbatches_of_same_size");
  options.min_batch_size = parameters.integer("min_batch_size");
  options.max_batch_size = parameters.maybe_integer("max_batch_size");
  if (options.effective_batch_size % input.ranks != 0) {
    throw InputError("effective_batch_size: {} ranks do not divide {} micro-batches of one step",
                     input.ranks,
                     options.effective_batch_size);
  }
  const SampleIds order = order_of(parameters.text("sequence_picking_order"), input);
  return truncated_shards(deepspeed_batch_by_seqlens(order, input.lengths, options), input.ranks);
}

}  // namespace stepsim
