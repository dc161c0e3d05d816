#include "sim/batching/policies/packed.h"

#include "sim/batching/algorithms/histogram_packing.h"
#include "sim/batching/algorithms/multipack.h"
#include "sim/batching/algorithms/packing.h"
#include "sim/batching/algorithms/packing_stream.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/policies/packed_rows.h"
#include "sim/batching/random/numpy_generator.h"

namespace stepsim {
namespace {

HistogramPacking packed_histogram(const PolicyParameters& parameters, const SampleIds& counts) {
  const std::string& algorithm = parameters.text("algorithm");
  const auto most = parameters.maybe_integer("max_sequences_per_pack");
  if (algorithm == "nnlshp") {
    return pack_least_squares(counts, most.value_or(3));
  }
  return algorithm == "lpfhp" ? pack_longest_first(counts, most.value_or(12))
                              : pack_shortest_first(counts, most.value_or(12));
}

/// The samples of a histogram's packs: of each length in the order of the data set.
Packs rows_of(const HistogramPacking& packing, const PolicyInput& input, std::int64_t capacity) {
  std::vector<SampleIds> waiting(static_cast<std::size_t>(capacity) + 1);
  for (auto sample = static_cast<std::int64_t>(input.lengths.size()); sample-- > 0;) {
    waiting[static_cast<std::size_t>(length_of(input.lengths, sample))].push_back(sample);
  }
  Packs rows;
  for (const auto& [count, lengths] : packing.strategies) {
    for (std::int64_t i = 0; i < count; ++i) {
      SampleIds& row = rows.emplace_back();
      for (const std::int64_t length : lengths) {
        SampleIds& own = waiting[static_cast<std::size_t>(length)];
        row.push_back(own.back());
        own.pop_back();
      }
    }
  }
  return rows;
}

}  // namespace

EpochBatches packed_knapsack_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return sampled_rows(pack_greedy_knapsack(input.lengths, parameters.integer("capacity")), input);
}

EpochBatches packed_longalign_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return sampled_rows(
      pack_longalign(
          all_samples(input.lengths.size()), input.lengths, parameters.integer("capacity")),
      input);
}

EpochBatches packed_histogram_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t capacity = parameters.integer("capacity");
  check_capacity(input, capacity);
  SampleIds counts(static_cast<std::size_t>(capacity));
  for (const std::int64_t length : input.lengths) {
    ++counts[static_cast<std::size_t>(length) - 1];
  }
  return sampled_rows(rows_of(packed_histogram(parameters, counts), input, capacity), input);
}

EpochBatches multipack_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  Multipack options;
  options.capacity = parameters.integer("capacity");
  options.ranks = input.ranks;
  const bool linear = parameters.text("algorithm") == "linear";
  options.method = linear ? Multipack::Method::Linear : Multipack::Method::Quadratic;
  check_capacity(input, options.capacity);
  const SampleIds order =
      input.sampler.shuffle
          ? generator_permutation(linear ? BitGenerator::Pcg64 : BitGenerator::Philox,
                                  static_cast<std::int64_t>(input.lengths.size()),
                                  input.sampler.seed + static_cast<std::uint64_t>(input.epoch))
          : all_samples(input.lengths.size());
  return multipack(order, input.lengths, options);
}

EpochBatches streamed_rows_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const auto rows = stream_rows(
      torch_order(input), input.lengths, input.ranks, parameters.integer("token_budget"));
  EpochBatches result(static_cast<std::size_t>(input.ranks));
  for (const auto& step : rows.steps) {
    for (std::size_t rank = 0; rank < result.size(); ++rank) {
      result[rank].push_back(step[rank]);
    }
  }
  return result;
}

}  // namespace stepsim
