#include "calibrate/fit/find_processors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "calibrate/fit/gemm_ratio_fit.h"
#include "calibrate/fit/nnls.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr std::int64_t kMaxProcessors = 256;
constexpr std::size_t kFewestPoints = 100;
/// Sizes from here on are computed, not fetched: their times show whole waves.
constexpr double kComputed = 512;
/// Points of the first search over all counts, and of the choice between the best of them.
constexpr std::size_t kThinned = 1000;
constexpr std::size_t kThorough = 8000;
constexpr std::size_t kFinalists = 10;
constexpr std::array<std::pair<double, double>, 8> kWaveTiles = {
    {{64, 64}, {64, 128}, {128, 64}, {128, 128}, {128, 256}, {256, 128}, {64, 256}, {256, 64}}};

double wave_residual(std::span<const GemmPoint> points, double processors) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const GemmPoint& point : points) {
    const double multiplications = point.m * point.n * point.k;
    std::vector<double> row = {
        1, multiplications, point.n * point.k + point.m * (point.n + point.k)};
    for (const auto& [tile_rows, tile_columns] : kWaveTiles) {
      const double tiles = std::ceil(point.m / tile_rows) * std::ceil(point.n / tile_columns);
      const double area = std::ceil(tiles / processors) * processors * tile_rows * tile_columns;
      row.push_back(area * point.k);
    }
    rows.push_back(std::move(row));
    seconds.push_back(point.seconds);
  }
  const std::vector<double> coefficients = relative_nnls(rows, seconds);
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    sum += std::abs(dot(coefficients, rows[i]) / seconds[i] - 1);
  }
  return sum;
}

std::vector<GemmPoint> computed_gemms(const std::vector<Series>& all) {
  std::vector<GemmPoint> large;
  for (const Series& series : all) {
    for (const SeriesPoint& point : series.points) {
      const GemmPoint gemm = gemm_point(series.op, point);
      if (series.op.op_class == OpClass::Gemm && std::min({gemm.m, gemm.n, gemm.k}) >= kComputed) {
        large.push_back(gemm);
      }
    }
  }
  return large;
}

std::vector<GemmPoint> thinned(std::span<const GemmPoint> points, std::size_t count) {
  return mapped(thinned_places(points.size(), count), [&](std::size_t i) { return points[i]; });
}

}  // namespace

std::int64_t find_processors(const std::vector<Series>& all) {
  const std::vector<GemmPoint> large = computed_gemms(all);
  if (large.size() < kFewestPoints) {
    return 0;
  }
  const std::vector<GemmPoint> some = thinned(large, kThinned);
  std::vector<std::pair<double, std::int64_t>> ranking;
  for (std::int64_t processors = 2; processors <= kMaxProcessors; processors += 2) {
    ranking.emplace_back(wave_residual(some, static_cast<double>(processors)), processors);
  }
  std::ranges::sort(ranking);
  ranking.resize(kFinalists);
  const std::vector<GemmPoint> more = thinned(large, kThorough);
  for (auto& [residual, processors] : ranking) {
    residual = wave_residual(more, static_cast<double>(processors));
  }
  return std::ranges::min_element(ranking)->second;
}

}  // namespace stepsim
