#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "costmodel/model/transformer.h"
#include "costmodel/records/plan_file.h"

namespace stepsim {

/// The batch shapes that occur: per rank and forward pass.
struct GridBox {
  std::int64_t min_length = 0;  ///< Of the padded length.
  std::int64_t max_length = 0;
  std::int64_t min_samples = 0;
  std::int64_t max_samples = 0;
  std::int64_t min_tokens = 0;  ///< Of samples * padded length.
  std::int64_t max_tokens = 0;
  std::int64_t length_step = 1;  ///< All padded lengths are multiples of this.
  bool operator==(const GridBox&) const = default;
};

/// A batch shape to measure: `samples` rows padded to `length`.
struct GridPoint {
  std::int64_t samples = 0;
  std::int64_t length = 0;
  [[nodiscard]] std::int64_t tokens() const { return samples * length; }
  bool operator==(const GridPoint&) const = default;
};

/// How fine a grid is; the defaults are the finest.
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

/// Batch shapes by rule, never a plan's own: lengths spaced geometrically from the shortest to the
/// longest; for each length sample counts spaced geometrically over what the box, its token range
/// widened by a quarter at both ends, allows. `longest` caps the lengths (0 = no cap).
///
/// Multiples of 16 run up to a third faster than other lengths (whole vectors and tiles), and few
/// batches have them: inner lengths lie 1 to 15 past a multiple of 16, every remainder in turn, and
/// only every fourth has a partner on it, and the longest where that is one. When all lengths of
/// the box are multiples of 8 or more (padding to a multiple), so are those of the grid.
[[nodiscard]] std::vector<GridPoint> make_grid(const GridBox& box,
                                               const GridDensity& density,
                                               std::int64_t longest);

/// The points in pairs around the tiles of a device: for each a round number of samples near it
/// with the next shorter length whose tokens are a whole number of 128, and with one token more,
/// just past it. A point without such a length in the box stays as it is. Source: reference study
/// of GEMM times; aligned sizes alone are 2.5 % too fast, and with the next size beside each
/// interpolation is off by 1.7 % in place of 5.3.
[[nodiscard]] std::vector<GridPoint> in_tile_pairs(const std::vector<GridPoint>& points,
                                                   const GridBox& box);

/// Lengths of a point's samples: the first is the point's, the others lie between 0.6 of it and it,
/// the same for a point on every rank and in every pass.
[[nodiscard]] std::vector<std::int64_t> point_lengths(const GridPoint& point);

/// splitmix64: the same numbers with every standard library.
[[nodiscard]] std::uint64_t next_random(std::uint64_t* state);

}  // namespace stepsim
