#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "costmodel/model/transformer.h"
#include "costmodel/records/plan_file.h"

namespace stepsim {

/// The batch shapes that one rank runs in one forward pass.
struct GridBox {
  std::int64_t min_length = 0;  ///< Padded length of a batch.
  std::int64_t max_length = 0;
  std::int64_t min_samples = 0;
  std::int64_t max_samples = 0;
  std::int64_t min_tokens = 0;  ///< Samples * padded length.
  std::int64_t max_tokens = 0;
  std::int64_t length_step = 1;  ///< All padded lengths are multiples of this.
  bool padded = true;            ///< Some batches have padding: a kernel may differ without.
  bool operator==(const GridBox&) const = default;
};

/// A batch shape to measure: `samples` rows padded to `length`.
struct GridPoint {
  std::int64_t samples = 0;
  std::int64_t length = 0;
  [[nodiscard]] std::int64_t tokens() const { return samples * length; }
  bool operator==(const GridPoint&) const = default;
};

/// How fine a grid is. The defaults are the finest.
struct GridDensity {
  int lengths = 11;
  int sample_counts = 5;
  bool operator==(const GridDensity&) const = default;
};

/// The box that the plans' micro-batches span. Raises InputError: no plans, or plans that differ in
/// model or ranks.
[[nodiscard]] GridBox box_of_plans(std::span<const Plan> plans);

/// The box of batches of up to `max_tokens` padded tokens with lengths up to `max_length`.
/// Raises InputError: a size below 1, or max_length above the model's or above max_tokens.
[[nodiscard]] GridBox box_of_limits(const TransformerConfig& model,
                                    std::int64_t max_length,
                                    std::int64_t max_tokens);

/// Chooses the batch shapes to measure by a rule, without looking at a plan's own: lengths are
/// spaced geometrically from the shortest to the longest, and for each length the sample counts are
/// spaced geometrically over what the box allows, with its token range widened by a quarter at both
/// ends. `longest` caps the lengths (0 = no cap).
///
/// Multiples of 16 run up to a third faster than other lengths (whole vectors and tiles), but few
/// batches have such a length. Inner lengths therefore lie 1 to 15 past a multiple of 16, with
/// every remainder in turn; only every fourth one gets a partner on the multiple itself, and so
/// does the longest. When all lengths of the box are multiples of 8 or more, because batches are
/// padded to a multiple, those of the grid are too.
[[nodiscard]] std::vector<GridPoint> make_grid(const GridBox& box,
                                               const GridDensity& density,
                                               std::int64_t longest);

/// Replaces each point by a pair on either side of a tile's step: a round number of samples near it
/// with the next shorter length that makes the tokens a multiple of 128, and the same with one
/// token more. A point without such a length in the box stays as it is. Source: reference study of
/// GEMM times. Aligned sizes alone are 2.5 % too fast; with the next size beside each,
/// interpolation is off by 1.7 % instead of 5.3 %.
[[nodiscard]] std::vector<GridPoint> in_tile_pairs(const std::vector<GridPoint>& points,
                                                   const GridBox& box);

/// Draws the lengths of a point's samples: the first is the point's own, the others lie between 0.6
/// of it and it, or have it too where batches are not `padded`. A point has the same lengths on
/// every rank and in every pass.
[[nodiscard]] std::vector<std::int64_t> point_lengths(const GridPoint& point, bool padded = true);

/// Draws the next number of splitmix64, which is the same with every standard library.
[[nodiscard]] std::uint64_t next_random(std::uint64_t* state);

}  // namespace stepsim
