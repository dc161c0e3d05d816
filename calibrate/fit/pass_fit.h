#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "costmodel/compute/pass_cost.h"
#include "costmodel/model/batch_shape.h"

namespace stepsim {

/// The time that one rank's pass took in one recorded step.
struct PassObservation {
  std::vector<BatchShape> batches;  ///< The step's micro-batches.
  double seconds = 0;
  int step = 0;  ///< Counts in order of recording; all ranks of a step share the number.
};

/// Whose memory a process works in. That of a processor goes back to the operating system when much
/// of it is free at once, and is new again, zeroed page by page, for the batches that need as much
/// once more: those near the largest. That of a GPU stays with the process.
enum class Memory { OfProcessor, OfGpu };

/// The features a pass is fitted with: a constant, samples, tokens and tokens * length. With dense
/// attention there are bends too: what of tokens * length is beyond each of the deciles 1, 3, 5, 7
/// and 9. With a processor's memory there are two parts of the tokens, "tokens:A-B": those from 0.7
/// times the most tokens on, and those beyond the most, which no observation has.
[[nodiscard]] std::vector<std::string> pass_features(std::span<const PassObservation> observations,
                                                     AttentionKind attention,
                                                     Memory memory);

/// A fit needs so many observations.
inline constexpr std::size_t kFewestPassSamples = 10;

/// The relative standard deviation of a pass's time when only its weight is known.
inline constexpr double kPriorSpread = 0.4;
/// Samples that are longer than the known ones have a larger one: attention grows with the square
/// of the length, of which a weight by parameters knows nothing.
inline constexpr double kLongerSpread = 0.6;

/// What a pass is expected to be proportional to before any of its times are known, such as its
/// floating-point operations.
using PassWeight = std::function<double(const BatchShape&)>;

/// Fits non-negative coefficients of `features` to the relative residuals.
///
/// The cost is the mean of fits to resampled steps (blocks of four in a row), which stay in
/// `draws`. Each of these fits uses only some of the features that the recorded batches can hardly
/// tell apart: a random half of the bends, and rather a constant than samples. Where that
/// leaves 1.25 times the squared residuals or more, it uses all of them.
///
/// Where the recorded batches do not tell, the cost is proportional to `weight`: halves, doubles
/// and quadruples of the middle batch count as observations of its time scaled by weight, as sure
/// as kPriorSpread, or of longer samples kLongerSpread, is against the residuals. Each draw draws
/// these observations, too. So it does
/// for the parts of the tokens: new memory adds 15 % to the largest batch, and 10 % to one 1.4
/// times as large, each within a factor of two or so. (Chosen on the two-rank records of
/// tests/live, where each policy predicts the others: tests/live/CROSS.md.)
///
/// Where there are fewer shapes than terms, half of `draws` are other_forms() (pass_forms.h). The
/// cost stays the mean of the fits.
///
/// `errors.random` is the mean |error| of single observations with every fifth step held out in
/// turn. `errors.block` is the mean |error| of the total of each fifth of the sizes, held out in
/// turn.
///
/// Raises InputError: fewer than kFewestPassSamples observations, or a time that is not positive.
[[nodiscard]] PassCost fit_pass(std::span<const PassObservation> observations,
                                const std::vector<std::string>& features,
                                AttentionKind attention,
                                const PassWeight& weight = {});

/// Sets the tokens and lengths that a cost was told by to those of `observations`.
void set_ranges(std::span<const PassObservation> observations,
                AttentionKind attention,
                PassCost& cost);

}  // namespace stepsim
