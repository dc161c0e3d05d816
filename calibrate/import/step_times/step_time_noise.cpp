#include "calibrate/import/step_times/step_time_noise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr double kNoiseSpread = 0.7;

/// Numbers of which each counts up to a cap.
struct CappedSum {
  std::vector<double> ascending;
  std::vector<double> before;  ///< [i] The sum of the first i.

  [[nodiscard]] double upto(double cap) const {
    const auto below = std::ranges::upper_bound(ascending, cap) - ascending.begin();
    return before[static_cast<std::size_t>(below)] +
           cap * static_cast<double>(static_cast<std::ptrdiff_t>(ascending.size()) - below);
  }
};

CappedSum capped_sum(const std::vector<double>& numbers) {
  CappedSum result{numbers, {0}};
  std::ranges::sort(result.ascending);
  for (const double number : result.ascending) {
    result.before.push_back(result.before.back() + number);
  }
  return result;
}

}  // namespace

StepTimeFit fit_with_noise(const StepTimeTable& table,
                           const StepTimeFitter& fitter,
                           const NoisePrior& prior) {
  StepTimeFit fit = fitter.fit(prior.compute, prior.run);
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<double> shares = communication_shares(fit, fit.posterior.mode);
    const std::vector<StepTimeParts> steps = step_times(fit, fit.posterior.mode);
    std::vector<std::vector<double>> squares(steps.size());  // [point] Squared residuals.
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const StepTimeRow& row = table.rows[i];
      if (has_several_ranks(row)) {
        const std::size_t point = fit.job.point_of_row[i];
        const double residual = std::log(steps[point].step / (row.step_s - row.data_s.value_or(0)));
        squares[point].push_back(residual * residual);
      }
    }
    const std::vector<CappedSum> sums = mapped(squares, capped_sum);
    double best = -1e300;
    double compute = prior.compute;
    double run = prior.run;
    constexpr int kGrid = 24;
    constexpr double kFarthest = 1.2;  // Factors of exp(-1.2) to exp(1.2).
    for (int i = -kGrid; i <= kGrid; ++i) {
      for (int j = -kGrid; j <= kGrid; ++j) {
        const double a = kFarthest * i / kGrid;
        const double b = kFarthest * j / kGrid;
        const double of_compute = prior.compute * std::exp(a);
        const double of_run = prior.run * std::exp(b);
        double likelihood = -(a * a + b * b) / (2 * kNoiseSpread * kNoiseSpread);
        for (std::size_t point = 0; point < squares.size(); ++point) {
          constexpr double kOutlier = 9;  // Squared deviations beyond which a row says no more.
          constexpr double kIndependent = 0.25;  // Rows of a run say less than as many runs.
          const double share = shares[point];
          const double variance =
              (1 - kCommonToRun) * (of_compute * of_compute + of_run * of_run * share * share);
          likelihood -=
              kIndependent * (static_cast<double>(squares[point].size()) * std::log(variance) +
                              sums[point].upto(kOutlier * variance) / variance);
        }
        if (likelihood > best) {
          best = likelihood;
          compute = of_compute;
          run = of_run;
        }
      }
    }
    fit = fitter.fit(compute, run);
  }
  fit.cost += (std::pow(std::log(fit.compute_noise / prior.compute), 2) +
               std::pow(std::log(fit.run_noise / prior.run), 2)) /
              (kNoiseSpread * kNoiseSpread);
  return fit;
}

}  // namespace stepsim
