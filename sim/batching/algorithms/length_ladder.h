#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "costmodel/compute/shape_cost.h"

namespace stepsim {

/// Batches of one kind: their samples, the longest of these, and how often they occur.
struct LadderBatch {
  std::int64_t samples = 0;
  std::int64_t length = 0;  ///< Tokens.
  std::int64_t count = 1;  ///< 0: it needs a rung and makes a shape, but takes no time that counts.
};

/// Which lengths batches should be padded to, where every new shape costs something once.
struct LadderProblem {
  std::span<const LadderBatch> batches;
  /// The seconds, 0 or more, that a batch of so many samples padded to a length takes.
  std::function<double(std::int64_t samples, std::int64_t length)> price;
  double shape_seconds = 0;                     ///< Cost of each distinct shape.
  ShapeKey key = ShapeKey::SamplesAndLength;    ///< That or Length.
  std::optional<std::int64_t> most_rungs = {};  ///< Absent: as many as pay.
  std::int64_t step = 1;                        ///< Rungs are multiples of it.
  /// No rung is longer, be it a multiple or not. Absent: no limit.
  std::optional<std::int64_t> longest_allowed = {};
};

/// Lengths to pad to: each batch to the lowest rung that is not below its length.
struct LengthLadder {
  std::vector<std::int64_t> rungs;  ///< Ascending.
  double compute_seconds = 0;       ///< Sum of the prices of all batches, padded.
  double shape_seconds = 0;         ///< Sum of the costs of all distinct shapes.
  std::int64_t shapes = 0;          ///< How many these are.
};

/// The most kinds of batches, and the most lengths (rounded up to the step), of a problem.
inline constexpr std::size_t kMostLadderBatches = 10'000'000;
inline constexpr std::size_t kMostLadderLengths = 20'000;
/// The most lengths times `most_rungs`, where fewer rungs are allowed than pay.
inline constexpr std::size_t kMostLadderCells = 20'000'000;

/// The ladder of least compute_seconds + shape_seconds.
///
/// Rungs are chosen among the lengths of the batches, rounded up to the step: with a step of 1 and
/// prices that do not fall with the length no other rungs are better. A dynamic programme over the
/// highest rung so far, exact: O(lengths * (batches + lengths * most_rungs)) time, 40 bytes a batch
/// and 12 bytes a length and allowed rung, so 640 MB at most.
///
/// Raises InputError: no batch, more of anything than the limits above, a batch without samples or
/// tokens, a negative count, a length above `longest_allowed`, a negative or endless cost, a step
/// or `most_rungs` below 1.
[[nodiscard]] LengthLadder optimal_length_ladder(const LadderProblem& problem);

}  // namespace stepsim
