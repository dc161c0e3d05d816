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
///     processors: Numbers of processors, each of which is fitted by itself; not empty.
[[nodiscard]] GemmRatio fit_gemm_ratio(std::span<const GemmPoint> points,
                                       std::span<const double> first,
                                       std::span<const std::int64_t> processors);

/// The numbers of processors, even, from 16 to 256, whose fits predict whole sizes (n, k) left out
/// best: at most three, the best first, each a tenth apart from the others. Kernels of some devices
/// leave processors idle, or put two tiles on one, so that the best need not be the device's own;
/// and where one is wrong the mean of several is less so.
///
/// Method: ridge regression of some 2000 points as in fit_gemm_ratio(), without reweighting; every
/// sixth size is left out in turn.
[[nodiscard]] std::vector<std::int64_t> wave_counts(std::span<const GemmPoint> points,
                                                    std::span<const double> first);

}  // namespace stepsim
