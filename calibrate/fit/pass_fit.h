#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "costmodel/compute/pass_cost.h"
#include "costmodel/model/batch_shape.h"

namespace stepsim {

/// What one rank's pass took in one recorded step.
struct PassObservation {
  std::vector<BatchShape> batches;  ///< Its micro-batches.
  double seconds = 0;
  int step = 0;  ///< In order of recording; all ranks of a step share it.
};

/// The features a pass is fitted with: a constant, samples, tokens and tokens * length; of dense
/// attention also what of tokens * length is beyond each of the deciles 1, 3, 5, 7 and 9.
[[nodiscard]] std::vector<std::string> pass_features(std::span<const PassObservation> observations,
                                                     AttentionKind attention);

/// Standard deviation of what is known of a pass by its weight alone.
inline constexpr double kPriorSpread = 0.4;

/// What a pass weighs before any of its times are known, such as its floating-point operations.
using PassWeight = std::function<double(const BatchShape&)>;

/// Fits `features` with coefficients that are not negative to the relative residuals.
///
/// The cost is the mean of fits to resampled steps (blocks of four in a row), each of which may use
/// some of the features that the recorded batches can hardly tell apart: a random half of the
/// bends, and rather a constant than samples; where that leaves 1.25 times the squared residuals or
/// more it uses all. Those fits stay in `draws`. Where the recorded batches do not tell, the cost
/// goes with `weight`: halves, doubles and quadruples of the middle batch count as observations of
/// its time by weight, as sure as kPriorSpread against the residuals; each draw draws them, too.
/// `errors.random`: mean |error|
/// of single observations, every fifth step held out in turn. `errors.block`: mean over fifths of
/// the sizes, each held out in turn, of |error| of its total.
///
/// Raises InputError: fewer than 10 observations, or a time that is not positive.
[[nodiscard]] PassCost fit_pass(std::span<const PassObservation> observations,
                                const std::vector<std::string>& features,
                                AttentionKind attention,
                                const PassWeight& weight = {});

}  // namespace stepsim
