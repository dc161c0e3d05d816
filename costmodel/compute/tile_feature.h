#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stepsim {

/// A cost feature of an op that works on whole tiles, so that partial tiles count as full ones.
///
/// A matrix multiplication has "row_tiles:R", the number of blocks of R rows, and "waves:RxC", the
/// rounds in which all processors (streaming multiprocessors of a GPU) work on one R x C tile each.
/// Fused attention has "length_tiles:R", the number of blocks of R positions over all sequences,
/// which are taken to have their mean length, and "length_tiles*length:R", that times the length.
struct TileFeature {
  enum class Kind { RowTiles, Waves, LengthTiles, LengthTilesTimesLength };
  Kind kind = Kind::RowTiles;
  std::int64_t rows = 0;     ///< Rows or positions of a tile.
  std::int64_t columns = 0;  ///< Columns of a tile; only waves have them.

  [[nodiscard]] bool is_waves() const { return kind == Kind::Waves; }
};

/// Parses a name as above, with sizes from 1 to 65,536; any other name gives nothing.
[[nodiscard]] std::optional<TileFeature> parse_tile_feature(std::string_view name);

/// The sizes that the value of a feature depends on.
struct TiledWork {
  double rows = 0;              ///< Tokens or samples.
  double length = 0;            ///< Mean length of the sequences; only length_tiles use it.
  double n = 0;                 ///< Columns of the output.
  std::int64_t processors = 0;  ///< At least 1; only waves use it.
};
[[nodiscard]] double tile_feature_value(const TileFeature& feature, const TiledWork& work);

}  // namespace stepsim
