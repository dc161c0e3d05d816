#include "sim/batching/policies/balanced.h"

#include <algorithm>

#include "costmodel/base/mapped.h"
#include "sim/batching/algorithms/ordered_partition.h"
#include "sim/batching/algorithms/partition.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/random/random.h"

namespace stepsim {
namespace {

/// The ranks' shares in the order in which a step takes them.
SampleIds interleaved(const PolicyInput& input) {
  const auto shares = rank_shares(input);
  SampleIds all;
  for (std::size_t i = 0; i < shares.front().samples.size(); ++i) {
    for (const auto& share : shares) {
      if (i < share.samples.size()) {
        all.push_back(share.samples[i]);
      }
    }
  }
  return all;
}

/// Global batches of so many micro-batches a rank, each of at least one sample a micro-batch.
Batches global_batches(const PolicyParameters& parameters,
                       const PolicyInput& input,
                       std::int64_t micro_batches = 1) {
  const SampleIds all = interleaved(input);
  const std::int64_t parts = input.ranks * micro_batches;
  Batches batches = chunk(all, parameters.integer("batch_size") * parts, input.sampler.drop_last);
  if (!batches.empty()) {
    const auto fewest = static_cast<std::size_t>(parts);
    for (std::size_t i = 0; batches.back().size() < fewest; ++i) {
      batches.back().push_back(all[i % all.size()]);
    }
  }
  return batches;
}

std::int64_t workload(const std::string& kind, std::int64_t length) {
  // verl counts 24576 operations a token beside its attention.
  constexpr std::int64_t kLinear = 24'576;
  if (kind == "tokens") {
    return length;
  }
  return kind == "tokens_sq" ? length * length : kLinear * length + length * length;
}

/// Every global batch cut by `partition`, which gets the samples' workloads.
template <typename Partition>
EpochBatches deal(const Batches& batches, const PolicyInput& input, Partition partition) {
  EpochBatches result(static_cast<std::size_t>(input.ranks));
  for (const auto& batch : batches) {
    const Parts parts = partition(lengths_of(input.lengths, batch));
    for (std::size_t rank = 0; rank < result.size(); ++rank) {
      SampleIds& own = result[rank].emplace_back();
      for (const std::int64_t place : parts[rank]) {
        own.push_back(batch[static_cast<std::size_t>(place)]);
      }
    }
  }
  return result;
}

SampleIds workloads(const PolicyParameters& parameters, SampleIds lengths) {
  const std::string& kind = parameters.text("workload");
  for (auto& length : lengths) {
    length = workload(kind, length);
  }
  return lengths;
}

std::int64_t padded(const SampleIds& batch, const PolicyInput& input) {
  std::int64_t longest = 0;
  for (const std::int64_t sample : batch) {
    longest = std::max(longest, input.lengths[static_cast<std::size_t>(sample)]);
  }
  return longest * static_cast<std::int64_t>(batch.size());
}

/// Halves the micro-batch of several samples with the most padded tokens, the first of equals,
/// until ranks divide their number. There are as many samples as ranks at least; where all
/// micro-batches hold one sample the first ones are repeated.
void halve_until_divisible(Batches& batches, const PolicyInput& input) {
  const auto ranks = static_cast<std::size_t>(input.ranks);
  std::size_t repeated = 0;
  while (batches.size() % ranks != 0) {
    std::size_t widest = batches.size();
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (batches[i].size() > 1 && (widest == batches.size() ||
                                    padded(batches[i], input) > padded(batches[widest], input))) {
        widest = i;
      }
    }
    if (widest == batches.size()) {
      batches.push_back(batches[repeated++]);
      continue;
    }
    // Ascending in length: the halves stay contiguous.
    SampleIds& whole = batches[widest];
    const auto middle = whole.begin() + std::ssize(whole) / 2;
    SampleIds second(middle, whole.end());
    (void)whole.erase(middle, whole.end());
    batches.push_back(std::move(second));
  }
}

}  // namespace

EpochBatches batch_rebalance_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t micro_batches = parameters.integer("micro_batches");
  EpochBatches result(static_cast<std::size_t>(input.ranks));
  for (const auto& batch : global_batches(parameters, input, micro_batches)) {
    const int parts = static_cast<int>(input.ranks * micro_batches);
    Batches cut = repartition_padded(lengths_of(input.lengths, batch), parts).parts;
    for (SampleIds& part : cut) {
      for (std::int64_t& place : part) {
        place = batch[static_cast<std::size_t>(place)];
      }
    }
    if (micro_batches == 1) {
      for (std::size_t rank = 0; rank < result.size(); ++rank) {
        result[rank].push_back(std::move(cut[rank]));
      }
      continue;
    }
    const SampleIds costs = mapped(cut, [&](const SampleIds& part) { return padded(part, input); });
    const Parts of_ranks = karmarkar_karp(costs, input.ranks, true);
    for (std::size_t rank = 0; rank < result.size(); ++rank) {
      for (const std::int64_t part : of_ranks[rank]) {
        result[rank].push_back(std::move(cut[static_cast<std::size_t>(part)]));
      }
    }
  }
  return result;
}

EpochBatches karmarkar_karp_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return deal(global_batches(parameters, input), input, [&](const SampleIds& lengths) {
    const bool equal_size = lengths.size() % static_cast<std::size_t>(input.ranks) == 0;
    return karmarkar_karp(workloads(parameters, lengths), input.ranks, equal_size);
  });
}

EpochBatches lpt_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return deal(global_batches(parameters, input), input, [&](const SampleIds& lengths) {
    return longest_processing_time(workloads(parameters, lengths), input.ranks);
  });
}

EpochBatches dynapipe_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  OrderedPartition options;
  options.overhead = parameters.integer("overhead_tokens");
  options.max_tokens = parameters.maybe_integer("max_tokens");
  options.stages = parameters.integer("pipeline_stages");
  options.replicas = input.ranks;
  EpochBatches result(static_cast<std::size_t>(input.ranks));
  for (const auto& batch : global_batches(parameters, input)) {
    Batches micro_batches = ordered_partition(lengths_of(input.lengths, batch), options);
    for (auto& micro_batch : micro_batches) {
      for (auto& place : micro_batch) {
        place = batch[static_cast<std::size_t>(place)];
      }
    }
    halve_until_divisible(micro_batches, input);
    const SampleIds costs = mapped(micro_batches, [&](const auto& micro_batch) {
      return options.overhead + padded(micro_batch, input);
    });
    Parts parts = karmarkar_karp(costs, input.ranks, true);
    for (std::size_t rank = 0; rank < result.size(); ++rank) {
      sort_descending(parts[rank], costs);
      for (const std::int64_t micro_batch : parts[rank]) {
        result[rank].push_back(micro_batches[static_cast<std::size_t>(micro_batch)]);
      }
    }
  }
  return result;
}

EpochBatches load_balancing_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  SampleIds all = interleaved(input);
  sort_by_length(all, input.lengths);
  const auto ranks = static_cast<std::size_t>(input.ranks);
  for (std::size_t i = 0; all.size() % ranks != 0; ++i) {
    all.push_back(all[i]);
  }
  const auto groups = static_cast<std::int64_t>(all.size() / ranks);
  const auto order =
      input.sampler.shuffle
          ? torch_randperm(groups, input.sampler.seed + static_cast<std::uint64_t>(input.epoch))
          : SampleIds();
  EpochBatches result;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    SampleIds own;
    for (std::int64_t i = 0; i < groups; ++i) {
      const std::int64_t group = order.empty() ? i : order[static_cast<std::size_t>(i)];
      own.push_back(all[static_cast<std::size_t>(group) * ranks + rank]);
    }
    result.push_back(chunk(own, parameters.integer("batch_size"), input.sampler.drop_last));
  }
  return result;
}

}  // namespace stepsim
