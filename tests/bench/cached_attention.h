#pragma once

#include <span>
#include <vector>

#include "tests/bench/kernel_tables.h"

namespace stepsim::bench {

/// Seconds of attention over a cache, by chunk C and earlier tokens S: relative NNLS of
/// [1, C, S, C S, C^2] times the exponential of a Gaussian process over (log C, log (C + S)).
///
/// Training has no cache and the simulator no such op: this form is here to be scored only. The
/// process adds to its smooth parts one for equal remainders of C and of S modulo 128, since
/// kernels work in tiles of that size, and one for an equal number of tiles of C + S.
class CachedAttention {
 public:
  /// `rows` is not empty.
  explicit CachedAttention(std::span<const PrefillRow> rows);

  [[nodiscard]] double seconds(const PrefillRow& row) const;

 private:
  std::vector<PrefillRow> rows_;
  double largest_ = 0;  ///< Chunk and cached tokens together.
  std::vector<double> coefficients_;
  std::vector<double> weights_;  ///< [row]
};

}  // namespace stepsim::bench
