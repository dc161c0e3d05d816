#include "calibrate/import/recorded/recorded_noise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "calibrate/import/recorded/recorded_reduces.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

/// Where each value stands among all, less a half: in (-0.5, 0.5).
std::vector<double> standings(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    result[order[i]] = (static_cast<double>(i) + 0.5) / static_cast<double>(order.size()) - 0.5;
  }
  return result;
}

/// The correlation of normal draws whose places have the rank correlation (Spearman) of the pairs
/// of ranks within a step: 2 sin(pi / 6 rho), Kruskal, J. Am. Stat. Assoc. 53 (1958). Not negative.
double rank_correlation(std::span<const ComputeRatio> ratios, const std::vector<double>& values) {
  const std::vector<double> standing = standings(values);
  std::map<int, std::vector<double>> by_step;
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    by_step[ratios[i].step].push_back(standing[i]);
  }
  double products = 0;
  double pairs = 0;
  for (const auto& [step, of_step] : by_step) {
    for (std::size_t a = 0; a < of_step.size(); ++a) {
      for (std::size_t b = a + 1; b < of_step.size(); ++b) {
        products += of_step[a] * of_step[b];
        pairs += 1;
      }
    }
  }
  if (pairs == 0) {
    return 0;
  }
  constexpr double kVariance = 1.0 / 12;  // The variance of a uniform place.
  const double spearman = products / pairs / kVariance;
  return std::clamp(2 * std::sin(std::numbers::pi / 6 * spearman), 0.0, 1.0);
}

/// A rank's ratios in the eighths of a recording.
using Eighths = std::array<std::vector<double>, 8>;

double mean_of(const std::vector<double>& values) {
  return trimmed_mean(values, kLeftOut);
}

/// Whether `own` lies steadily off `usual`, of which `factor` is the ratio.
bool is_steady(const Eighths& own, const Eighths& usual, double factor) {
  constexpr double kLeast = 0.04;
  constexpr double kErrors = 4;
  std::vector<double> parts;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].empty() || usual[i].empty()) {
      return false;
    }
    parts.push_back(mean_of(own[i]) / mean_of(usual[i]));
  }
  const auto count = static_cast<double>(parts.size());
  const double error = std::sqrt(
      sum_of(parts, [&](const double part) { return (part - factor) * (part - factor); }) /
      (count - 1) / count);
  const auto off = [&](std::size_t first) {
    double sum = 0;
    for (std::size_t i = first; i < first + parts.size() / 2; ++i) {
      sum += parts[i] - 1;
    }
    return sum / (count / 2);
  };
  const double least = std::max(kLeast, kErrors * error);
  return std::abs(factor - 1) > least &&
         std::min(off(0) / (factor - 1), off(4) / (factor - 1)) > 0.5;
}

/// Tried in tests/ACCURACY.md: these variables removed such steps.
constexpr const char* kAllocatorHint =
    "; on Linux it is mostly the allocator, which gives memory back: train with "
    "MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000";

}  // namespace

double drift_of(std::span<const ComputeRatio> ratios, int steps) {
  constexpr int kParts = 8;
  // For a random walk with variance T in the time T, the means over two runs of that length in a
  // row differ by a variance of 2 T / 3, and the parts of a run differ from its mean by T / 6.
  constexpr double kNextRun = 2;
  std::vector<std::vector<double>> parts(kParts);
  for (const ComputeRatio& ratio : ratios) {
    const int part = ratio.step * kParts / std::max(steps, 1);
    parts[static_cast<std::size_t>(part)].push_back(ratio.ratio);
  }
  double between = 0;
  double within = 0;
  int used = 0;
  for (const auto& part : parts) {
    if (part.size() < 2) {
      continue;
    }
    const auto n = static_cast<double>(part.size());
    const double average = std::accumulate(part.begin(), part.end(), 0.0) / n;
    const double squares =
        sum_of(part, [&](const double ratio) { return (ratio - average) * (ratio - average); });
    between += (average - 1) * (average - 1);
    within += squares / (n - 1) / n;
    ++used;
  }
  return used > 0 ? kNextRun * std::sqrt(std::max(0.0, (between - within) / used)) : 0;
}

NoiseProfile fit_step_noise(std::span<const ComputeRatio> ratios, int steps) {
  const std::vector<double> values = mapped(ratios, &ComputeRatio::ratio);
  NoiseProfile noise;
  noise.step_quantiles = quantiles_over_mean(values);
  noise.step_jitter = robust_deviation(values);
  noise.rank_correlation = rank_correlation(ratios, values);
  noise.drift = drift_of(ratios, steps);
  return noise;
}

void keep_spread_of_runs(std::span<const ComputeRatio> ratios, int steps, NoiseProfile& noise) {
  const double squares = sum_of(
      ratios, [](const ComputeRatio& ratio) { return (ratio.ratio - 1) * (ratio.ratio - 1); });
  const double variance = squares / static_cast<double>(ratios.size() - 1);
  noise.drift = std::sqrt(noise.drift * noise.drift + variance / std::max(steps, 1));
  noise.step_jitter = 0;
  noise.step_quantiles.clear();
  noise.rank_correlation = 0;
}

std::vector<double> unequal_ranks(std::span<const ComputeRatio> ratios,
                                  std::span<const int> ranks,
                                  int world_size) {
  constexpr std::size_t kFewest = 24;
  if (world_size < 2 || ratios.empty()) {
    return {};
  }
  std::vector<Eighths> parts(static_cast<std::size_t>(world_size));
  std::vector<std::vector<double>> all(parts.size());
  const int first = std::ranges::min(ratios, {}, &ComputeRatio::step).step;
  const int steps = std::ranges::max(ratios, {}, &ComputeRatio::step).step - first + 1;
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    const auto rank = static_cast<std::size_t>(ranks[i]);
    const auto part = static_cast<std::size_t>((ratios[i].step - first) * 8LL / steps);
    parts[rank][part].push_back(ratios[i].ratio);
    all[rank].push_back(ratios[i].ratio);
  }
  std::vector<std::pair<double, std::size_t>> means;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() < kFewest) {
      return {};
    }
    means.emplace_back(mean_of(all[rank]), rank);
  }
  std::ranges::sort(means);
  const auto [usual, usual_rank] = means[(means.size() - 1) / 2];
  std::vector<double> factors(all.size(), 1.0);
  for (const auto& [mean, rank] : means) {
    if (is_steady(parts[rank], parts[usual_rank], mean / usual)) {
      factors[rank] = mean / usual;
    }
  }
  const bool alike = std::ranges::all_of(factors, [](double factor) { return factor == 1; });
  return alike ? std::vector<double>{} : factors;
}

std::string slow_steps_text(std::span<const ComputeRatio> ratios,
                            std::span<const int> ranks,
                            bool on_gpu,
                            double slowed_by_others) {
  constexpr double kSlow = 1.25;
  constexpr double kMany = 0.02;
  std::vector<double> all = mapped(ratios, &ComputeRatio::ratio);
  const double usual = quantile(all, 0.5);
  std::map<int, std::pair<int, int>> slow_of_rank;  // Slow ones and all.
  std::vector<double> slow;
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    auto& [count, of] = slow_of_rank[ranks[i]];
    ++of;
    if (ratios[i].ratio > kSlow * usual) {
      ++count;
      slow.push_back(ratios[i].ratio / usual);
    }
  }
  if (static_cast<double>(slow.size()) < kMany * static_cast<double>(ratios.size())) {
    return "";
  }
  constexpr std::size_t kMostRanks = 8;
  std::vector<std::string> shares;
  for (const auto& [rank, counts] : slow_of_rank) {
    if (shares.size() < kMostRanks) {
      shares.push_back(fmt::format("rank {} {:.0f} %", rank, 100.0 * counts.first / counts.second));
    }
  }
  return fmt::format(
             "{:.1f} % of the ranks' steps take {:.2f} to {:.2f} times what others of their size "
             "take ({}{}): "
             "no size explains them, so they are in the jitter and in the interval",
             100.0 * static_cast<double>(slow.size()) / static_cast<double>(ratios.size()),
             quantile(slow, 0.05),
             quantile(slow, 0.95),
             fmt::join(shares, ", "),
             slow_of_rank.size() > kMostRanks ? ", …" : "") +
         (on_gpu || slowed_by_others >= quantile(slow, 0.95) ? "" : kAllocatorHint);
}

}  // namespace stepsim
