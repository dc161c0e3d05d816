#include "costmodel/compute/tile_feature.h"

#include <array>
#include <cmath>
#include <utility>

#include "costmodel/base/parse_number.h"

namespace stepsim {
namespace {

using Kind = TileFeature::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 4> kPrefixes = {
    {{"row_tiles:", Kind::RowTiles},
     {"waves:", Kind::Waves},
     {"length_tiles:", Kind::LengthTiles},
     {"length_tiles*length:", Kind::LengthTilesTimesLength}}};
constexpr std::int64_t kMaxSize = 65536;

/// Parses a whole number that must fill all of the text.
std::optional<std::int64_t> parse_size(std::string_view text) {
  const auto size = parse_number<std::int64_t>(text);
  return size && *size >= 1 && *size <= kMaxSize ? size : std::nullopt;
}

}  // namespace

std::optional<TileFeature> parse_tile_feature(std::string_view name) {
  for (const auto& [prefix, kind] : kPrefixes) {
    if (name.substr(0, prefix.size()) != prefix) {
      continue;
    }
    const std::string_view sizes = name.substr(prefix.size());
    if (kind != Kind::Waves) {
      const auto rows = parse_size(sizes);
      return rows ? std::optional(TileFeature{kind, *rows, 0}) : std::nullopt;
    }
    const std::size_t cross = sizes.find('x');
    if (cross == std::string_view::npos) {
      return std::nullopt;
    }
    const auto rows = parse_size(sizes.substr(0, cross));
    const auto columns = parse_size(sizes.substr(cross + 1));
    return rows && columns ? std::optional(TileFeature{kind, *rows, *columns}) : std::nullopt;
  }
  return std::nullopt;
}

double tile_feature_value(const TileFeature& feature, const TiledWork& work) {
  const auto tiles = [](double size, std::int64_t tile) {
    return std::ceil(size / static_cast<double>(tile));
  };
  if (feature.kind == Kind::RowTiles) {
    return tiles(work.rows, feature.rows);
  }
  if (feature.kind == Kind::Waves) {
    const double count = tiles(work.rows, feature.rows) * tiles(work.n, feature.columns);
    return std::ceil(count / static_cast<double>(work.processors));
  }
  const double sequences = work.length > 0 ? work.rows / work.length : 0;
  const double blocks = sequences * tiles(work.length, feature.rows);
  return feature.kind == Kind::LengthTiles ? blocks : blocks * work.length;
}

}  // namespace stepsim
