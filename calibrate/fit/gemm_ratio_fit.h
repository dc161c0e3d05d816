#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "costmodel/compute/gemm_ratio.h"

namespace stepsim {

/// One measured matrix product m x k times k x n.
struct GemmPoint {
  double m = 0;
  double n = 0;
  double k = 0;
  double seconds = 0;
};

/// Weights of gemm_ratio_features() for log(seconds / first), first being a first estimate of each
/// point: ridge regression in features scaled to deviation 1, reweighted towards least absolute
/// residuals, so that a kernel that behaves differently does not bend the rest.
///
/// Args:
///     points: Not empty.
///     first: [point] Positive.
[[nodiscard]] GemmRatio fit_gemm_ratio(std::span<const GemmPoint> points,
                                       std::span<const double> first,
                                       std::int64_t processors);

/// The number of processors, even and at most 256, whose waves explain the times best: relative
/// NNLS of [1, flops, bytes] and the work of whole waves of the usual tiles. 0 with fewer than 100
/// points of sizes from 512 on, the only ones that are looked at. A thousand points rank all
/// counts, up to 8000 decide between the best ten.
[[nodiscard]] std::int64_t find_processors(std::span<const GemmPoint> points);

}  // namespace stepsim
