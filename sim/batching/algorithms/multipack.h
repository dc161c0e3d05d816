#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stepsim {

struct Multipack {
  /// How samples are put into the ranks' bins, and how a step's samples are found.
  enum class Method {
    Quadratic,  ///< Longest processing time: ranks get nearly equal tokens.
    Linear      ///< First-fit decreasing: fuller bins, less even.
  };
  Method method = Method::Quadratic;
  std::int64_t capacity = 1;  ///< The tokens of one rank in one step.
  int ranks = 1;
};

/// [rank][step] sample ids: each step takes the longest prefix of what is left that fits into one
/// bin a rank (by binary search over prefixes). Ends where fewer samples than ranks fit
/// (Quadratic) or fewer bins than ranks are used (Linear); the rest is dropped.
///
/// Equal lengths are taken in the order given.
/// Source: imoneoi/multipack_sampler.
[[nodiscard]] std::vector<std::vector<std::vector<std::int64_t>>> multipack(
    std::span<const std::int64_t> order,
    std::span<const std::int64_t> lengths,
    const Multipack& options);

}  // namespace stepsim
