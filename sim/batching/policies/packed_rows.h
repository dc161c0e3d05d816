#pragma once

#include "sim/batching/algorithms/packing.h"
#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

// What the packed policies share: the rule for long samples, and how rows come to the ranks.

namespace stepsim {

/// Raises InputError: a sample above the capacity.
void check_capacity(const PolicyInput& input, std::int64_t capacity);

/// Row k to rank k modulo ranks. Ranks get equally many rows: where they do not divide, the fullest
/// ones are halved (the first ones repeated where no row holds several samples); drop_last leaves
/// the last rows out instead.
[[nodiscard]] EpochBatches rows_in_turn(Packs rows, const PolicyInput& input);

/// The same, but as the sampler deals a data set of rows out.
[[nodiscard]] EpochBatches sampled_rows(Packs rows, const PolicyInput& input);

/// The pieces of rows numbered through, so that they are dealt out as samples.
struct NumberedRows {
  Packs rows;                         ///< [row] indices of pieces.
  std::vector<Piece> pieces;          ///< By row.
  std::vector<std::int64_t> lengths;  ///< [piece]
};
[[nodiscard]] NumberedRows numbered(const PiecePacks& rows);

/// `rows` consecutive rows of each rank make a batch; the last one may hold fewer unless drop_last
/// leaves it out.
[[nodiscard]] EpochBatches rows_together(const EpochBatches& ranks,
                                         std::int64_t rows,
                                         bool drop_last);

/// Batches of indices of pieces; of samples where all pieces are whole ones.
[[nodiscard]] EpochPlan plan_of_pieces(EpochBatches batches,
                                       std::vector<Piece> pieces,
                                       std::span<const std::int64_t> lengths);

/// [rank][batch] rows of pieces, each batch [row][piece], cut to the batches that every rank has.
[[nodiscard]] EpochPlan plan_of_rows(const std::vector<std::vector<PiecePacks>>& ranks,
                                     std::span<const std::int64_t> lengths);

}  // namespace stepsim
