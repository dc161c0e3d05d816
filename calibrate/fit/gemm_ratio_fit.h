#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "calibrate/fit/series.h"
#include "costmodel/compute/gemm_ratio.h"

namespace stepsim {

/// One measured matrix product m x k times k x n.
struct GemmPoint {
  double m = 0;
  double n = 0;
  double k = 0;
  double seconds = 0;
};

/// The product that a GEMM op computes for this point's batch; m is at least 1.
[[nodiscard]] GemmPoint gemm_point(const Op& op, const SeriesPoint& point);

/// Fits the weights of gemm_ratio_features() to log(seconds / first), `first` being a first
/// estimate of each point.
///
/// Method: ridge regression in features scaled to deviation 1, reweighted towards least absolute
/// residuals, so that a kernel that behaves differently does not bend the rest.
///
/// Args:
///     points: Not empty.
///     first: [point] Positive.
[[nodiscard]] GemmRatio fit_gemm_ratio(std::span<const GemmPoint> points,
                                       std::span<const double> first,
                                       std::int64_t processors);

/// The number of processors, even and at most 256, whose waves explain the times of the measured
/// GEMMs best; 0 when fewer than 100 points have sizes from 512 on, the only ones that tell.
///
/// Method: relative NNLS of [1, flops, bytes] and the work of whole waves of the usual tiles. A
/// thousand points rank all counts, up to 8000 decide between the best ten.
[[nodiscard]] std::int64_t find_processors(const std::vector<Series>& all);

}  // namespace stepsim
