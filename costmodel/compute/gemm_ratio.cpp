#include "costmodel/compute/gemm_ratio.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

namespace stepsim {
namespace {

/// The tile sizes that GEMM libraries choose from: rows and columns of the output.
constexpr std::array<std::pair<double, double>, 8> kGemmTiles = {
    {{64, 64}, {64, 128}, {128, 64}, {128, 128}, {128, 256}, {256, 128}, {64, 256}, {256, 64}}};
constexpr std::size_t kSizeFeatures = 15;
constexpr std::size_t kTileFeatures = 15;
constexpr double kMaxLog = 1.5;

double inside(double value, const std::pair<double, double>& range) {
  return std::clamp(value, range.first, range.second);
}

}  // namespace

std::size_t gemm_ratio_width() {
  return kSizeFeatures + kTileFeatures * kGemmTiles.size();
}

std::vector<double> gemm_ratio_features(double m, double n, double k, std::int64_t processors) {
  const std::array<double, 4> sizes = {std::log(m / 1024),
                                       std::log(n / 4096),
                                       std::log(k / 4096),
                                       std::log(m * n * k / (n * k + m * (n + k))) - 4};
  std::vector<double> features = {1};
  features.reserve(gemm_ratio_width());
  features.insert(features.end(), sizes.begin(), sizes.end());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t j = i; j < sizes.size(); ++j) {
      features.push_back(sizes[i] * sizes[j]);
    }
  }
  for (const auto& [rows, columns] : kGemmTiles) {
    const double row_tiles = std::ceil(m / rows);
    const double waves = row_tiles * std::ceil(n / columns) / static_cast<double>(processors);
    const double whole = std::ceil(waves);
    const double idle = std::log(whole / waves);
    features.push_back(std::log(row_tiles * rows / m));
    for (const double factor :
         {1.0, sizes[0], sizes[1], sizes[2], idle, std::exp(-waves), 1 / std::sqrt(waves)}) {
      features.push_back(idle * factor);
    }
    features.push_back(1 / whole);
    features.push_back(std::min(waves, 1.0));
    features.push_back(whole == 1 ? 1 : 0);
    features.push_back(whole == 1 ? sizes[2] : 0);
    for (const double count : {2.0, 3.0, 4.0}) {
      features.push_back(whole == count ? 1 : 0);
    }
  }
  assert(features.size() == gemm_ratio_width());
  return features;
}

double gemm_ratio(const GemmRatio& ratio, double m, double n, double k) {
  double sum = 0;
  auto weight = ratio.weights.begin();
  for (const std::int64_t processors : ratio.processors) {
    double log_ratio = 0;
    for (const double feature : gemm_ratio_features(
             inside(m, ratio.m), inside(n, ratio.n), inside(k, ratio.k), processors)) {
      log_ratio += *weight++ * feature;
    }
    sum += std::clamp(log_ratio, -kMaxLog, kMaxLog);
  }
  return std::exp(sum / static_cast<double>(ratio.processors.size()));
}

}  // namespace stepsim
