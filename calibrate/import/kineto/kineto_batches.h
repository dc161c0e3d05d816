#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/kineto/kineto_passes.h"
#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// The shape of a padded batch.
struct KinetoBatch {
  std::int64_t samples = 0;
  std::int64_t length = 1;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 finds a 0 in what the compiler writes.
  auto operator<=>(const KinetoBatch&) const = default;
};

/// The forward passes of a run, wherever they were traced.
struct KinetoForward {
  const KinetoTrace* trace = nullptr;
  int thread = 0;  ///< The main one.
  KinetoPass pass;
};

/// The batches of forward passes, or why they cannot be told.
struct KinetoBatches {
  std::vector<KinetoBatch> batches;  ///< [forward] Empty when there is a `problem`.
  std::string source;                ///< "aten::embedding's indices, [samples, length]", …
  std::string problem;
};

/// Finds the batches by the first op of each forward pass that takes one: an embedding (its
/// indices; those of positions, which are the same for all samples, are passed over), a convolution
/// or a linear layer. The length of images is their number of patches of 16 x 16 pixels.
///
/// Which dimension is the length is told by the first batched product or attention of the pass,
/// where there is any; otherwise it is the second one. `length_first` says it instead.
[[nodiscard]] KinetoBatches kineto_batches(std::span<const KinetoForward> forwards,
                                           std::optional<bool> length_first);

}  // namespace stepsim
