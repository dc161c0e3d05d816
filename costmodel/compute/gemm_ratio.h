#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace stepsim {

/// The ratio of a GEMM's time to its roofline sum, for sizes that were never measured. It is
/// exp(weights . features), where the features are logarithms of the sizes, products of these, and
/// for each of the usual tile sizes what partial tiles and partial waves waste. With several
/// numbers of processors it is the geometric mean of their ratios.
struct GemmRatio {
  /// Numbers of processors that may share the tiles of a wave: not always all that a device has,
  /// or more where one works on two tiles at once.
  std::vector<std::int64_t> processors;
  /// For each number of processors, one for each of gemm_ratio_features(), in that order.
  std::vector<double> weights;
  /// The measured range of each size; sizes outside are moved to its nearer end.
  std::pair<double, double> m;
  std::pair<double, double> n;
  std::pair<double, double> k;

  bool operator==(const GemmRatio&) const = default;
};

/// Returns the number of features, which does not depend on the sizes.
[[nodiscard]] std::size_t gemm_ratio_width();

/// Returns the features of a GEMM (m x k) times (k x n), with sizes of at least 1, on `processors`
/// processors.
///
/// They are 1; a = log(m / 1024), b = log(n / 4096), c = log(k / 4096) and d, the log of operations
/// per element moved, less 4; and the products of any two of a, b, c, d. Then come, for each tile
/// size, with w the waves before rounding up and g = log(ceil(w) / w): the log of the row padding;
/// g alone and times each of a, b, c, g, exp(-w) and 1 / sqrt(w); 1 / ceil(w); min(w, 1); whether
/// ceil(w) is 1, alone and times c; and whether it is 2, 3 or 4.
[[nodiscard]] std::vector<double> gemm_ratio_features(double m,
                                                      double n,
                                                      double k,
                                                      std::int64_t processors);

/// Returns the geometric mean of exp(weights . features) for the sizes, each moved into its
/// measured range. Each ratio is clamped to exp(-1.5) .. exp(1.5).
[[nodiscard]] double gemm_ratio(const GemmRatio& ratio, double m, double n, double k);

}  // namespace stepsim
