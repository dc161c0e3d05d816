#include "sim/batching/policies/packed.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/core.h>

#include "costmodel/input_error.h"
#include "sim/batching/histogram_packing.h"
#include "sim/batching/multipack.h"
#include "sim/batching/numpy_generator.h"
#include "sim/batching/packing.h"
#include "sim/batching/partition.h"
#include "sim/batching/policies/policies.h"
#include "sim/batching/rank_schedule.h"

namespace stepsim {
namespace {

using Samples = std::vector<std::int64_t>;

std::int64_t length_of(const PolicyInput& input, std::int64_t sample) {
  return input.lengths[static_cast<std::size_t>(sample)];
}

Samples all_samples(const PolicyInput& input) {
  Samples ids(input.lengths.size());
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

void check_lengths(const PolicyInput& input, std::int64_t capacity) {
  const auto longest = std::max_element(input.lengths.begin(), input.lengths.end());
  if (longest != input.lengths.end() && *longest > capacity) {
    throw InputError(fmt::format(
        "sample {} has {} tokens, above the capacity of {}; cut lengths with cap = {} in [data]",
        longest - input.lengths.begin(),
        *longest,
        capacity,
        capacity));
  }
}

std::int64_t tokens_of(const Samples& row, const PolicyInput& input) {
  std::int64_t sum = 0;
  for (const std::int64_t sample : row) {
    sum += length_of(input, sample);
  }
  return sum;
}

/// The second half of a row by tokens, taken out of it.
Samples split_off(Samples& row, const PolicyInput& input) {
  Samples lengths;
  for (const std::int64_t sample : row) {
    lengths.push_back(length_of(input, sample));
  }
  Parts halves = longest_processing_time(lengths, 2);
  for (auto& half : halves) {
    for (auto& place : half) {
      place = row[static_cast<std::size_t>(place)];
    }
  }
  row = std::move(halves[0]);
  return std::move(halves[1]);
}

/// Rows that divide over the ranks. Only where no row holds several samples do the first rows occur
/// twice.
Packs divisible(Packs rows, const PolicyInput& input) {
  const auto ranks = static_cast<std::size_t>(input.ranks);
  const std::size_t over = rows.size() % ranks;
  if (input.sampler.drop_last || over == 0) {
    rows.resize(rows.size() - over);
    return rows;
  }
  // The fullest row of several samples on top, the first of equals.
  std::vector<std::pair<std::int64_t, std::size_t>> heap;
  const auto add = [&](std::size_t row) {
    if (rows[row].size() > 1) {
      heap.emplace_back(-tokens_of(rows[row], input), row);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  for (std::size_t row = 0; row < rows.size(); ++row) {
    add(row);
  }
  std::size_t repeated = 0;
  while (rows.size() % ranks != 0) {
    if (heap.empty()) {
      rows.push_back(rows[repeated++]);
      continue;
    }
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::size_t fullest = heap.back().second;
    heap.pop_back();
    rows.push_back(split_off(rows[fullest], input));
    add(fullest);
    add(rows.size() - 1);
  }
  return rows;
}

/// Row k to rank k modulo ranks.
EpochBatches in_turn(Packs rows, const PolicyInput& input) {
  EpochBatches result(static_cast<std::size_t>(input.ranks));
  rows = divisible(std::move(rows), input);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    result[row % result.size()].push_back(std::move(rows[row]));
  }
  return result;
}

/// Rows as the sampler deals a data set of rows out.
EpochBatches sampled(Packs rows, const PolicyInput& input) {
  rows = divisible(std::move(rows), input);
  EpochBatches result(static_cast<std::size_t>(input.ranks));
  if (rows.empty()) {
    return result;
  }
  const auto orders =
      rank_orders(input.sampler, static_cast<std::int64_t>(rows.size()), input.ranks, input.epoch);
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    for (const std::int64_t row : orders[rank].samples) {
      result[rank].push_back(rows[static_cast<std::size_t>(row)]);
    }
  }
  return result;
}

HistogramPacking packed_histogram(const PolicyParameters& parameters, const Samples& counts) {
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
  std::vector<Samples> waiting(static_cast<std::size_t>(capacity) + 1);
  for (auto sample = static_cast<std::int64_t>(input.lengths.size()); sample-- > 0;) {
    waiting[static_cast<std::size_t>(length_of(input, sample))].push_back(sample);
  }
  Packs rows;
  for (const auto& [count, lengths] : packing.strategies) {
    for (std::int64_t i = 0; i < count; ++i) {
      Samples& row = rows.emplace_back();
      for (const std::int64_t length : lengths) {
        Samples& own = waiting[static_cast<std::size_t>(length)];
        row.push_back(own.back());
        own.pop_back();
      }
    }
  }
  return rows;
}

}  // namespace

EpochBatches packed_bfd_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t capacity = parameters.integer("capacity");
  check_lengths(input, capacity);
  Packs rows;
  for (const auto& pack : pack_best_fit_decreasing(input.lengths, capacity, false)) {
    Samples& row = rows.emplace_back();
    for (const Piece& piece : pack) {
      row.push_back(piece.sample);
    }
  }
  return sampled(std::move(rows), input);
}

EpochBatches packed_first_fit_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t capacity = parameters.integer("capacity");
  check_lengths(input, capacity);
  return in_turn(pack_first_fit(torch_order(input),
                                input.lengths,
                                {capacity,
                                 parameters.integer("sample_packing_bin_size"),
                                 parameters.integer("sample_packing_group_size")}),
                 input);
}

EpochBatches packed_next_fit_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t capacity = parameters.integer("capacity");
  check_lengths(input, capacity);
  return in_turn(pack_next_fit(torch_order(input), input.lengths, capacity), input);
}

EpochBatches packed_knapsack_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return sampled(pack_greedy_knapsack(input.lengths, parameters.integer("capacity")), input);
}

EpochBatches packed_longalign_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return sampled(pack_longalign(all_samples(input), input.lengths, parameters.integer("capacity")),
                 input);
}

EpochBatches packed_histogram_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const std::int64_t capacity = parameters.integer("capacity");
  check_lengths(input, capacity);
  Samples counts(static_cast<std::size_t>(capacity));
  for (const std::int64_t length : input.lengths) {
    ++counts[static_cast<std::size_t>(length) - 1];
  }
  return sampled(rows_of(packed_histogram(parameters, counts), input, capacity), input);
}

EpochBatches multipack_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  Multipack options;
  options.capacity = parameters.integer("capacity");
  options.ranks = input.ranks;
  const bool linear = parameters.text("algorithm") == "linear";
  options.method = linear ? Multipack::Method::Linear : Multipack::Method::Quadratic;
  check_lengths(input, options.capacity);
  const Samples order =
      input.sampler.shuffle
          ? generator_permutation(linear ? BitGenerator::Pcg64 : BitGenerator::Philox,
                                  static_cast<std::int64_t>(input.lengths.size()),
                                  input.sampler.seed + static_cast<std::uint64_t>(input.epoch))
          : all_samples(input);
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
