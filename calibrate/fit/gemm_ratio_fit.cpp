#include "calibrate/fit/gemm_ratio_fit.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <Eigen/Dense>

#include "calibrate/samples/statistics.h"
#include "costmodel/model/op_flops.h"

namespace stepsim {
namespace {

/// The weight of the ridge for each point. Of 3e-5 to 0.03 it is the one whose errors on whole
/// models and sizes left out of the 4 k and 32 k tables are low whatever number of processors is
/// assumed: 3e-5 is as good on the sizes of the card whose processors are known, and worse by up to
/// a half on a model left out and with another number.
constexpr double kRidge = 0.003;
/// Rounds of reweighting.
constexpr int kRounds = 8;
/// Residuals of the logarithm below this count alike: the repeatability of a measurement.
constexpr double kSmallResidual = 0.01;

/// Numbers of processors that are tried, the points they are tried on, and the parts that their
/// sizes are left out in.
constexpr std::int64_t kFewestProcessors = 16;
constexpr std::int64_t kMostProcessors = 256;
constexpr std::size_t kTried = 2000;
constexpr std::size_t kSizeParts = 6;
/// So many of the best are kept, no two of them closer than this factor.
constexpr std::size_t kKept = 3;
constexpr double kApart = 1.1;

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

/// Points as rows of features, each scaled to deviation 1, with the logarithms to be explained.
struct RatioRows {
  Eigen::MatrixXd features;
  Eigen::VectorXd target;
  Eigen::VectorXd scale;
};

RatioRows ratio_rows(std::span<const GemmPoint> points,
                     std::span<const double> first,
                     std::int64_t processors) {
  const auto height = static_cast<Eigen::Index>(points.size());
  const auto width = static_cast<Eigen::Index>(gemm_ratio_width());
  RatioRows rows{Eigen::MatrixXd(height, width), Eigen::VectorXd(height), {}};
  for (Eigen::Index i = 0; i < height; ++i) {
    const GemmPoint& point = points[static_cast<std::size_t>(i)];
    const std::vector<double> features = gemm_ratio_features(point.m, point.n, point.k, processors);
    rows.features.row(i) = Eigen::Map<const Eigen::RowVectorXd>(features.data(), width);
    rows.target(i) = std::log(point.seconds / first[static_cast<std::size_t>(i)]);
  }
  rows.scale = deviations(rows.features);
  rows.features = rows.features * rows.scale.cwiseInverse().asDiagonal();
  return rows;
}

/// The sums that a ridge is solved from: of some rows, or of all.
struct RidgeSums {
  Eigen::MatrixXd normal;
  Eigen::VectorXd right;
  double rows = 0;

  [[nodiscard]] Eigen::VectorXd solution() const {
    const auto width = normal.rows();
    const Eigen::MatrixXd ridge = Eigen::MatrixXd::Identity(width, width) * (kRidge * rows);
    return (normal + ridge).selfadjointView<Eigen::Lower>().ldlt().solve(right);
  }
};

RidgeSums sums_of(const Eigen::MatrixXd& features, const Eigen::VectorXd& target) {
  RidgeSums sums;
  sums.normal = Eigen::MatrixXd::Zero(features.cols(), features.cols());
  sums.normal.selfadjointView<Eigen::Lower>().rankUpdate(features.transpose());
  sums.right = features.transpose() * target;
  sums.rows = static_cast<double>(features.rows());
  return sums;
}

/// The weights for one number of processors.
std::vector<double> ratio_weights(std::span<const GemmPoint> points,
                                  std::span<const double> first,
                                  std::int64_t processors) {
  const RatioRows rows = ratio_rows(points, first, processors);
  Eigen::VectorXd importance = Eigen::VectorXd::Ones(rows.target.size());
  Eigen::VectorXd solution;
  for (int round = 0; round < kRounds; ++round) {
    const Eigen::VectorXd root = importance.cwiseSqrt();
    solution =
        sums_of(root.asDiagonal() * rows.features, root.cwiseProduct(rows.target)).solution();
    importance =
        (rows.target - rows.features * solution).cwiseAbs().cwiseMax(kSmallResidual).cwiseInverse();
    importance /= importance.mean();
  }
  solution = solution.cwiseQuotient(rows.scale);
  return {solution.begin(), solution.end()};
}

/// [part] The points of every kSizeParts-th size.
std::vector<std::vector<Eigen::Index>> parts_of_sizes(std::span<const GemmPoint> points) {
  std::map<std::pair<double, double>, std::size_t> sizes;
  std::vector<std::vector<Eigen::Index>> parts(kSizeParts);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto size = sizes.try_emplace({points[i].n, points[i].k}, sizes.size()).first->second;
    parts[size % kSizeParts].push_back(static_cast<Eigen::Index>(i));
  }
  return parts;
}

/// The sum of the errors on sizes left out, part by part. Without reweighting each point's sums
/// are formed only once.
double left_out_error(const RatioRows& rows, const std::vector<std::vector<Eigen::Index>>& parts) {
  const RidgeSums all = sums_of(rows.features, rows.target);
  double error = 0;
  for (const std::vector<Eigen::Index>& part : parts) {
    const Eigen::MatrixXd features = rows.features(part, Eigen::all);
    const Eigen::VectorXd target = rows.target(part);
    RidgeSums kept = sums_of(features, target);
    kept.normal = all.normal - kept.normal;
    kept.right = all.right - kept.right;
    kept.rows = all.rows - kept.rows;
    error += ((features * kept.solution() - target).array().exp() - 1).abs().sum();
  }
  return error;
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
                         std::span<const std::int64_t> processors) {
  GemmRatio ratio;
  ratio.processors.assign(processors.begin(), processors.end());
  for (const std::int64_t count : processors) {
    const std::vector<double> weights = ratio_weights(points, first, count);
    ratio.weights.insert(ratio.weights.end(), weights.begin(), weights.end());
  }
  ratio.m = range_of(points, &GemmPoint::m);
  ratio.n = range_of(points, &GemmPoint::n);
  ratio.k = range_of(points, &GemmPoint::k);
  return ratio;
}

std::vector<std::int64_t> wave_counts(std::span<const GemmPoint> points,
                                      std::span<const double> first) {
  std::vector<GemmPoint> some;
  std::vector<double> first_of_some;
  for (const std::size_t i : thinned_places(points.size(), kTried)) {
    some.push_back(points[i]);
    first_of_some.push_back(first[i]);
  }
  const auto parts = parts_of_sizes(some);
  std::vector<std::pair<double, std::int64_t>> ranking;
  for (std::int64_t count = kFewestProcessors; count <= kMostProcessors; count += 2) {
    ranking.emplace_back(left_out_error(ratio_rows(some, first_of_some, count), parts), count);
  }
  std::ranges::sort(ranking);
  std::vector<std::int64_t> kept;
  for (const auto& [error, count] : ranking) {
    const auto far = [count = static_cast<double>(count)](std::int64_t other) {
      const double factor = count / static_cast<double>(other);
      return std::max(factor, 1 / factor) >= kApart;
    };
    if (kept.size() < kKept && std::ranges::all_of(kept, far)) {
      kept.push_back(count);
    }
  }
  return kept;
}

}  // namespace stepsim
