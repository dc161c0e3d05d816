#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stepsim {

/// A feature of a matrix multiplication that is computed in tiles, by name: "row_tiles:R", the
/// blocks of R rows, or "waves:RxC", how often all processors (streaming multiprocessors of a GPU)
/// work on one tile of R x C each; both rounded up.
struct TileFeature {
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< 0 = row_tiles.

  [[nodiscard]] bool is_waves() const { return columns > 0; }
};

/// Empty for any other name. Sizes are from 1 to 65,536.
[[nodiscard]] std::optional<TileFeature> parse_tile_feature(std::string_view name);

/// Args:
///     m, n: Rows and columns of the output.
///     processors: At least 1; only read by waves.
[[nodiscard]] double tile_feature_value(const TileFeature& feature,
                                        double m,
                                        double n,
                                        std::int64_t processors);

}  // namespace stepsim
