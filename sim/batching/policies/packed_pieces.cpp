#include "sim/batching/policies/packed_pieces.h"

#include <algorithm>
#include <iterator>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/batching/algorithms/packing.h"
#include "sim/batching/algorithms/packing_stream.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/policies/packed_rows.h"

namespace stepsim {
namespace {

/// Rows of the whole data set, dealt out as the sampler deals a data set of rows out.
EpochPlan sampled(const PiecePacks& packs,
                  const PolicyParameters& parameters,
                  const PolicyInput& input) {
  NumberedRows numbers = numbered(packs);
  PolicyInput of_pieces = input;
  of_pieces.lengths = numbers.lengths;
  const EpochBatches ranks = sampled_rows(std::move(numbers.rows), of_pieces);
  return plan_of_pieces(rows_together(ranks, parameters.integer("rows"), input.sampler.drop_last),
                        std::move(numbers.pieces),
                        input.lengths);
}

/// The data set without the samples above the capacity, or with their heads, as the parameter
/// excess_length_strategy says.
std::vector<Piece> fitting(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t capacity = parameters.integer("capacity");
  const std::string& strategy = parameters.text("excess_length_strategy");
  if (strategy == "raise") {
    check_capacity(input, capacity);
  }
  std::vector<Piece> kept;
  for (std::size_t i = 0; i < input.lengths.size(); ++i) {
    if (input.lengths[i] <= capacity || strategy == "truncate") {
      kept.push_back({static_cast<std::int64_t>(i), 0, std::min(input.lengths[i], capacity)});
    }
  }
  return kept;
}

/// Rows that `pack` makes of the samples that fit, as of a data set of their own.
template <typename Pack>
EpochPlan packed_as_sampled(const PolicyParameters& parameters,
                            const PolicyInput& input,
                            Pack pack) {
  std::vector<Piece> pieces = fitting(parameters, input);
  const std::vector<std::int64_t> lengths = mapped(pieces, &Piece::length);
  PolicyInput kept = input;
  kept.lengths = lengths;
  EpochBatches batches = rows_in_turn(pack(torch_order(kept), lengths), kept);
  return plan_of_pieces(std::move(batches), std::move(pieces), input.lengths);
}

EpochPlan best_fit_decreasing(const PolicyParameters& parameters,
                              const PolicyInput& input,
                              bool split) {
  return sampled(pack_best_fit_decreasing(input.lengths, parameters.integer("capacity"), split),
                 parameters,
                 input);
}

}  // namespace

EpochPlan packed_bfd_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return best_fit_decreasing(parameters, input, false);
}

EpochPlan packed_bfd_split_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return best_fit_decreasing(parameters, input, true);
}

EpochPlan packed_wrapped_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const SampleIds order = all_samples(input.lengths.size());
  return sampled(
      pack_wrapped(order, input.lengths, parameters.integer("capacity")), parameters, input);
}

EpochPlan packed_first_fit_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  FirstFit options;
  options.capacity = parameters.integer("capacity");
  options.max_samples = parameters.integer("sample_packing_bin_size");
  options.group = parameters.integer("sample_packing_group_size");
  return packed_as_sampled(
      parameters,
      input,
      [&options](std::span<const std::int64_t> order, std::span<const std::int64_t> lengths) {
        return pack_first_fit(order, lengths, options);
      });
}

EpochPlan packed_next_fit_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t capacity = parameters.integer("capacity");
  return packed_as_sampled(
      parameters,
      input,
      [capacity](std::span<const std::int64_t> order, std::span<const std::int64_t> lengths) {
        return pack_next_fit(order, lengths, capacity);
      });
}

EpochPlan packed_best_fit_crop_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  BestFitCrop options;
  options.capacity = parameters.integer("capacity");
  options.buffer = parameters.integer("buffer_size");
  options.refill_group = parameters.integer("tokenizer_batch_size");
  const auto rows = static_cast<std::size_t>(parameters.integer("rows"));
  std::vector<std::vector<PiecePacks>> ranks;
  for (const RankOrder& share : rank_shares(input)) {
    PiecePacks packs = pack_best_fit_crop(share.samples, input.lengths, options);
    auto& batches = ranks.emplace_back();
    for (std::size_t row = 0; row + rows <= packs.size(); row += rows) {
      const auto begin = packs.begin() + static_cast<std::ptrdiff_t>(row);
      batches.emplace_back(std::move_iterator(begin),
                           std::move_iterator(begin + static_cast<std::ptrdiff_t>(rows)));
    }
  }
  return plan_of_rows(ranks, input.lengths);
}

EpochPlan packed_stream_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t tokens = parameters.integer("num_tokens_local");
  const std::int64_t max_length = parameters.integer("max_seq_len");
  const std::vector<std::int64_t> order = sample_order(input);
  std::vector<std::vector<PiecePacks>> ranks(static_cast<std::size_t>(input.ranks));
  std::size_t first = 0;
  while (auto step =
             take_from_stream(order, input.lengths, first, input.ranks, tokens, max_length)) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].push_back({std::move(step->ranks[rank])});
    }
    first = step->next;
  }
  return plan_of_rows(ranks, input.lengths);
}

EpochPlan packed_bins_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t rows = parameters.integer("rows");
  const auto samples =
      static_cast<std::int64_t>(static_cast<double>(rows) * parameters.number("packing_ratio"));
  std::vector<std::vector<PiecePacks>> ranks;
  for (const RankOrder& share : rank_shares(input)) {
    BinCollator collator(rows,
                         parameters.integer("capacity"),
                         parameters.maybe_integer("max_leftover_bins_to_keep"));
    auto& batches = ranks.emplace_back();
    for (const auto& micro_batch : chunk(share.samples, samples, input.sampler.drop_last)) {
      batches.push_back(collator.step(micro_batch, input.lengths));
    }
  }
  return plan_of_rows(ranks, input.lengths);
}

void check_packed_bins(const PolicyParameters& parameters) {
  if (parameters.number("packing_ratio") < 1) {
    throw InputError("packing_ratio: {} is below 1: a row holds a sample at least",
                     parameters.number("packing_ratio"));
  }
}

}  // namespace stepsim
