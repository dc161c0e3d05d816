#include "calibrate/fit/gemm_ratio_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <Eigen/Dense>

#include "calibrate/fit/nnls.h"
#include "costmodel/model/op_flops.h"

namespace stepsim {
namespace {

/// The weight of the ridge for each point, and the rounds of reweighting. They were chosen by the
/// mean error of GEMMs left out of training rows: 5.39 %; a ridge of 0.0008 and 8 rounds gave 5.42
/// %.
constexpr double kRidge = 0.00003;
constexpr int kRounds = 20;
/// Residuals of the logarithm below this count alike: the repeatability of a measurement.
constexpr double kSmallResidual = 0.01;

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

std::pair<double, double> range_of(std::span<const GemmPoint> points, double GemmPoint::*size) {
  std::pair<double, double> range(points.front().*size, points.front().*size);
  for (const GemmPoint& point : points) {
    range.first = std::min(range.first, point.*size);
    range.second = std::max(range.second, point.*size);
  }
  return range;
}

/// Deviation of each column; 1 for a constant one.
Eigen::VectorXd deviations(const Eigen::MatrixXd& matrix) {
  Eigen::VectorXd scale(matrix.cols());
  for (Eigen::Index j = 0; j < matrix.cols(); ++j) {
    const double mean = matrix.col(j).mean();
    const double deviation = std::sqrt((matrix.col(j).array() - mean).square().sum() /
                                       static_cast<double>(matrix.rows()));
    scale(j) = deviation > 1e-9 ? deviation : 1;
  }
  return scale;
}

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

/// About `count` of the points, drawn evenly but not in step with the order of their sizes.
std::vector<GemmPoint> thinned(std::span<const GemmPoint> points, std::size_t count) {
  std::vector<GemmPoint> some;
  std::uint32_t state = 1;
  for (const GemmPoint& point : points) {
    state = state * 1664525U + 1013904223U;
    if (static_cast<double>(state) * 0x1p-32 * static_cast<double>(points.size()) <
        static_cast<double>(count)) {
      some.push_back(point);
    }
  }
  return some;
}

}  // namespace

GemmPoint gemm_point(const Op& op, const SeriesPoint& point) {
  return {std::max(rows_of(op, point.batch), 1.0),
          static_cast<double>(op.n),
          static_cast<double>(op.k),
          point.seconds};
}

GemmRatio fit_gemm_ratio(std::span<const GemmPoint> points,
                         std::span<const double> first,
                         std::int64_t processors) {
  const auto height = static_cast<Eigen::Index>(points.size());
  const auto width = static_cast<Eigen::Index>(gemm_ratio_width());
  Eigen::MatrixXd matrix(height, width);
  Eigen::VectorXd target(height);
  for (Eigen::Index i = 0; i < height; ++i) {
    const GemmPoint& point = points[static_cast<std::size_t>(i)];
    const std::vector<double> features = gemm_ratio_features(point.m, point.n, point.k, processors);
    matrix.row(i) = Eigen::Map<const Eigen::RowVectorXd>(features.data(), width);
    target(i) = std::log(point.seconds / first[static_cast<std::size_t>(i)]);
  }
  const Eigen::VectorXd scale = deviations(matrix);
  matrix = matrix * scale.cwiseInverse().asDiagonal();
  Eigen::VectorXd importance = Eigen::VectorXd::Ones(height);
  Eigen::VectorXd solution = Eigen::VectorXd::Zero(width);
  for (int round = 0; round < kRounds; ++round) {
    const Eigen::MatrixXd weighted = importance.cwiseSqrt().asDiagonal() * matrix;
    Eigen::MatrixXd normal =
        Eigen::MatrixXd::Identity(width, width) * (kRidge * static_cast<double>(height));
    normal.selfadjointView<Eigen::Lower>().rankUpdate(weighted.transpose());
    solution = normal.selfadjointView<Eigen::Lower>().ldlt().solve(matrix.transpose() *
                                                                   importance.cwiseProduct(target));
    importance = (target - matrix * solution).cwiseAbs().cwiseMax(kSmallResidual).cwiseInverse();
    importance /= importance.mean();
  }
  solution = solution.cwiseQuotient(scale);
  GemmRatio ratio;
  ratio.processors = processors;
  ratio.weights.assign(solution.begin(), solution.end());
  ratio.m = range_of(points, &GemmPoint::m);
  ratio.n = range_of(points, &GemmPoint::n);
  ratio.k = range_of(points, &GemmPoint::k);
  return ratio;
}

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
