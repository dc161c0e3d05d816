#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stepsim {

/// A feature of an op that is computed in tiles, by name, rounded up.
///
/// Of a matrix multiplication: "row_tiles:R", the blocks of R rows; "waves:RxC", how often all
/// processors (streaming multiprocessors of a GPU) work on one tile of R x C each. Of fused
/// attention: "length_tiles:R", the blocks of R positions of all sequences, taken as equal to their
/// mean length; "length_tiles*length:R", the same times that length.
struct TileFeature {
  enum class Kind { RowTiles, Waves, LengthTiles, LengthTilesTimesLength };
  Kind kind = Kind::RowTiles;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< Of waves.

  [[nodiscard]] bool is_waves() const { return kind == Kind::Waves; }
};

/// Empty for any other name. Sizes are from 1 to 65,536.
[[nodiscard]] std::optional<TileFeature> parse_tile_feature(std::string_view name);

/// What the value of a feature depends on.
struct TiledWork {
  double rows = 0;              ///< Tokens or samples.
  double length = 0;            ///< Mean length of the sequences; only read by length_tiles.
  double n = 0;                 ///< Columns of the output.
  std::int64_t processors = 0;  ///< At least 1; only read by waves.
};
[[nodiscard]] double tile_feature_value(const TileFeature& feature, const TiledWork& work);

}  // namespace stepsim
