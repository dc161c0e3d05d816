#include "calibrate/import/step_times/step_time_draws.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "calibrate/import/step_times/step_time_fitter.h"
#include "costmodel/base/mapped.h"

namespace stepsim {

namespace {

/// Adds draws of one fit; those beyond a bound stand at it.
void add_draws(const Posterior& posterior,
               const std::vector<StepTimeBound>& bounds,
               int count,
               std::vector<std::vector<double>>& draws) {
  constexpr std::uint64_t kDrawSeed = 1;
  for (std::vector<double>& draw : posterior_draws(posterior, count, kDrawSeed)) {
    for (const StepTimeBound& bound : bounds) {
      const double least = std::min(bound.least, posterior.mode[bound.place]);
      draw[bound.place] = std::max(draw[bound.place], least);
    }
    draws.push_back(std::move(draw));
  }
}

}  // namespace

std::vector<std::vector<double>> drawn_coefficients(const StepTimeFit& fit) {
  constexpr int kDraws = 100;
  const int parts = 1 + static_cast<int>(fit.alternatives.size());
  const int pairs = (kDraws / 2 + parts - 1) / parts;
  std::vector<std::vector<double>> draws;
  add_draws(fit.posterior, fit.bounds, 2 * pairs, draws);
  for (const StepTimeAlternative& other : fit.alternatives) {
    add_draws(other.posterior, other.bounds, 2 * pairs, draws);
  }
  return draws;
}

std::pair<double, double> DrawnStep::interval(double outside) const {
  const auto ends = std::ranges::minmax(steps);  // No bindings: Clang 14 keeps them out of lambdas.
  constexpr double kSmallest = 1e-6;
  const double deviation = std::max(noise, kSmallest);
  const auto end = [&](double share) {
    constexpr double kReach = 6;
    double low = std::log(ends.min) - kReach * deviation;
    double high = std::log(ends.max) + kReach * deviation;
    constexpr int kHalvings = 50;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      double below = 0;
      for (const double step : steps) {
        below += 0.5 * std::erfc((std::log(step) - middle) / deviation / std::sqrt(2.0));
      }
      (below < share * static_cast<double>(steps.size()) ? low : high) = middle;
    }
    return std::exp((low + high) / 2);
  };
  return {end(outside), end(1 - outside)};
}

DrawnStep drawn_step(const StepTimeFit& fit,
                     const std::vector<std::vector<double>>& draws,
                     std::size_t compute,
                     const Placement& placement,
                     double spread,
                     std::int64_t micro_batches) {
  DrawnStep result;
  result.steps = mapped(draws, [&](const std::vector<double>& draw) {
    return step_time(fit.job,
                     coefficients_of(fit, draw),
                     compute_of(fit, draw, compute),
                     placement,
                     spread,
                     micro_batches)
        .step;
  });
  const double share =
      communication_share(fit, fit.posterior.mode, compute, placement, micro_batches);
  result.noise = std::hypot(fit.compute_noise, fit.run_noise * share);
  return result;
}

}  // namespace stepsim
