#pragma once

#include "sim/batching/algorithms/packing.h"
#include "sim/batching/epoch_plan.h"

// What the packed policies share: the rule for long samples, and how rows come to the ranks.

namespace stepsim {

/// Raises InputError: a sample above the capacity.
void check_capacity(const PolicyInput& input, std::int64_t capacity);

/// Deals row k to rank k modulo ranks. Ranks get equally many rows: where the rows do not divide,
/// the fullest ones are halved (or the first ones repeated, where no row holds several samples).
/// drop_last leaves out the last rows instead.
[[nodiscard]] EpochBatches rows_in_turn(Packs rows, const PolicyInput& input);

/// Deals the rows out as the sampler deals out a data set of rows.
[[nodiscard]] EpochBatches sampled_rows(Packs rows, const PolicyInput& input);

/// Rows whose pieces are numbered through, so that they can be dealt out as samples are.
struct NumberedRows {
  Packs rows;                         ///< [row] indices of pieces.
  std::vector<Piece> pieces;          ///< The pieces, row after row.
  std::vector<std::int64_t> lengths;  ///< [piece]
};
[[nodiscard]] NumberedRows numbered(const PiecePacks& rows);

/// `rows` consecutive rows of each rank make a batch; the last one may hold fewer unless drop_last
/// leaves it out.
[[nodiscard]] EpochBatches rows_together(const EpochBatches& ranks,
                                         std::int64_t rows,
                                         bool drop_last);

/// A plan whose batches hold indices of pieces, or ids of samples where all pieces are whole.
[[nodiscard]] EpochPlan plan_of_pieces(EpochBatches batches,
                                       std::vector<Piece> pieces,
                                       std::span<const std::int64_t> lengths);

/// [rank][batch] rows of pieces, each batch [row][piece], cut to the batches that every rank has.
[[nodiscard]] EpochPlan plan_of_rows(const std::vector<std::vector<PiecePacks>>& ranks,
                                     std::span<const std::int64_t> lengths);

}  // namespace stepsim
