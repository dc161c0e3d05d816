#include "calibrate/import/step_times/step_time_noise.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace stepsim {
namespace {

constexpr double kNoiseSpread = 0.7;

}  // namespace

StepTimeFit fit_with_noise(const StepTimeTable& table,
                           const StepTimeFitter& fitter,
                           const NoisePrior& prior) {
  StepTimeFit fit = fitter.fit(prior.compute, prior.run);
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::pair<double, double>> rows;  // Squared residual, share of communication.
    for (const StepTimeRow& row : table.rows) {
      if (!has_several_ranks(row)) {
        continue;
      }
      const StepTimePrediction predicted =
          predict_step_time(fit, compute_point(fit.job, row), row.placement, work_spread(row));
      const double residual =
          std::log(predicted.parts.step / (row.step_s - row.data_s.value_or(0)));
      const double share =
          communication_share(fit, fit.posterior.mode, compute_point(fit.job, row), row.placement);
      rows.emplace_back(residual * residual, share);
    }
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
        for (const auto& [square, share] : rows) {
          constexpr double kOutlier = 9;  // Squared deviations beyond which a row says no more.
          constexpr double kIndependent = 0.25;  // Rows of a run say less than as many runs.
          const double variance =
              (1 - kCommonToRun) * (of_compute * of_compute + of_run * of_run * share * share);
          likelihood -= kIndependent * (std::log(variance) + std::min(square / variance, kOutlier));
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
