#include "sim/batching/policies/packed_rows.h"

#include <algorithm>
#include <functional>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/partition.h"
#include "sim/batching/algorithms/samples.h"

namespace stepsim {
namespace {

/// The second half of a row by tokens, taken out of it.
SampleIds split_off(SampleIds& row, const PolicyInput& input) {
  Parts halves = longest_processing_time(lengths_of(input.lengths, row), 2);
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
      heap.emplace_back(-tokens_of(input.lengths, rows[row]), row);
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

}  // namespace

void check_capacity(const PolicyInput& input, std::int64_t capacity) {
  const auto longest = std::ranges::max_element(input.lengths);
  if (longest != input.lengths.end() && *longest > capacity) {
    throw InputError(
        "sample {} has {} tokens, above the capacity of {}; cut lengths with cap = {} in [data]",
        longest - input.lengths.begin(),
        *longest,
        capacity,
        capacity);
  }
}

EpochBatches rows_in_turn(Packs rows, const PolicyInput& input) {
  EpochBatches result(static_cast<std::size_t>(input.ranks));
  rows = divisible(std::move(rows), input);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    result[row % result.size()].push_back(std::move(rows[row]));
  }
  return result;
}

EpochBatches sampled_rows(Packs rows, const PolicyInput& input) {
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

NumberedRows numbered(const PiecePacks& rows) {
  NumberedRows result;
  for (const auto& row : rows) {
    SampleIds& own = result.rows.emplace_back();
    for (const Piece& piece : row) {
      own.push_back(std::ssize(result.pieces));
      result.pieces.push_back(piece);
      result.lengths.push_back(piece.length);
    }
  }
  return result;
}

EpochBatches rows_together(const EpochBatches& ranks, std::int64_t rows, bool drop_last) {
  EpochBatches result(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto whole = static_cast<std::size_t>(std::ssize(ranks[rank]) / rows * rows);
    for (std::size_t row = 0; row < (drop_last ? whole : ranks[rank].size()); ++row) {
      if (row % static_cast<std::size_t>(rows) == 0) {
        result[rank].emplace_back();
      }
      SampleIds& batch = result[rank].back();
      batch.insert(batch.end(), ranks[rank][row].begin(), ranks[rank][row].end());
    }
  }
  return result;
}

EpochPlan plan_of_pieces(EpochBatches batches,
                         std::vector<Piece> pieces,
                         std::span<const std::int64_t> lengths) {
  const auto is_whole = [lengths](const Piece& piece) {
    return piece.length == lengths[static_cast<std::size_t>(piece.sample)];
  };
  if (std::ranges::all_of(pieces, is_whole)) {
    for (Batches& rank : batches) {
      for (SampleIds& batch : rank) {
        for (std::int64_t& id : batch) {
          id = pieces[static_cast<std::size_t>(id)].sample;
        }
      }
    }
    pieces.clear();
  }
  return {std::move(batches), std::move(pieces)};
}

EpochPlan plan_of_rows(const std::vector<std::vector<PiecePacks>>& ranks,
                       std::span<const std::int64_t> lengths) {
  std::size_t fewest = ranks.empty() ? 0 : ranks.front().size();
  for (const auto& rank : ranks) {
    fewest = std::min(fewest, rank.size());
  }
  EpochBatches batches(ranks.size());
  std::vector<Piece> pieces;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t batch = 0; batch < fewest; ++batch) {
      SampleIds& own = batches[rank].emplace_back();
      for (const auto& row : ranks[rank][batch]) {
        for (const Piece& piece : row) {
          own.push_back(std::ssize(pieces));
          pieces.push_back(piece);
        }
      }
    }
  }
  return plan_of_pieces(std::move(batches), std::move(pieces), lengths);
}

}  // namespace stepsim
