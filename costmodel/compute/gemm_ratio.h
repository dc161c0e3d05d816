#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace stepsim {

/// What a GEMM takes over its roofline sum, for sizes never measured: exp(weights . features), the
/// features being logarithms of the sizes, their products, and what is lost to partial tiles and
/// waves for each of the usual tiles.
struct GemmRatio {
  std::int64_t processors = 0;
  std::vector<double> weights;  ///< As gemm_ratio_features().
  /// Measured range of each size; the features are taken at the nearest size inside.
  std::pair<double, double> m;
  std::pair<double, double> n;
  std::pair<double, double> k;

  bool operator==(const GemmRatio&) const = default;
};

/// Number of features, whatever the sizes.
[[nodiscard]] std::size_t gemm_ratio_width();

/// Features of a GEMM m x k times k x n (sizes of at least 1) on `processors` processors:
/// 1; a = log(m / 1024), b = log(n / 4096), c = log(k / 4096), d = log of operations per element
/// moved; the products of two of them; and for each tile, with w = waves before rounding up and
/// g = log(ceil(w) / w): the row padding, g alone and times a, b, c, g, exp(-w), 1 / sqrt(w),
/// 1 / ceil(w), min(w, 1), whether w is at most 1 (alone and times c), 2, 3, 4.
[[nodiscard]] std::vector<double> gemm_ratio_features(double m,
                                                      double n,
                                                      double k,
                                                      std::int64_t processors);

/// exp(weights . features) of the sizes moved into the measured box, between exp(-1.5) and
/// exp(1.5).
[[nodiscard]] double gemm_ratio(const GemmRatio& ratio, double m, double n, double k);

}  // namespace stepsim
