#include "costmodel/tile_feature.h"

#include <charconv>
#include <cmath>

namespace stepsim {
namespace {

constexpr std::string_view kRowTiles = "row_tiles:";
constexpr std::string_view kWaves = "waves:";
constexpr std::int64_t kMostSize = 65536;

/// A whole number that fills all of the text.
std::optional<std::int64_t> parse_size(std::string_view text) {
  std::int64_t size = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, size);
  const bool good = error == std::errc() && rest == end && size >= 1 && size <= kMostSize;
  return good ? std::optional(size) : std::nullopt;
}

}  // namespace

std::optional<TileFeature> parse_tile_feature(std::string_view name) {
  if (name.substr(0, kRowTiles.size()) == kRowTiles) {
    const auto rows = parse_size(name.substr(kRowTiles.size()));
    return rows ? std::optional(TileFeature{*rows, 0}) : std::nullopt;
  }
  const std::size_t cross = name.find('x');
  if (name.substr(0, kWaves.size()) != kWaves || cross == std::string_view::npos) {
    return std::nullopt;
  }
  const auto rows = parse_size(name.substr(kWaves.size(), cross - kWaves.size()));
  const auto columns = parse_size(name.substr(cross + 1));
  return rows && columns ? std::optional(TileFeature{*rows, *columns}) : std::nullopt;
}

double tile_feature_value(const TileFeature& feature, double m, double n, std::int64_t processors) {
  const double row_tiles = std::ceil(m / static_cast<double>(feature.rows));
  if (!feature.is_waves()) {
    return row_tiles;
  }
  const double column_tiles = std::ceil(n / static_cast<double>(feature.columns));
  return std::ceil(row_tiles * column_tiles / static_cast<double>(processors));
}

}  // namespace stepsim
