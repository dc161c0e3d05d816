#include "calibrate/import/step_times/step_time_fit.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "calibrate/import/step_times/step_time_fitter.h"
#include "calibrate/import/step_times/step_time_noise.h"
#include "calibrate/import/step_times/step_time_prior.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// Mean |error| over the placements with several ranks, each left out in turn; nothing for fewer
/// than three.
std::optional<double> held_out_error(const StepTimeTable& table,
                                     const StepTimeFitter& fitter,
                                     const StepTimeFit& whole) {
  std::set<std::string> kinds;
  for (const StepTimeRow& row : table.rows) {
    if (has_several_ranks(row)) {
      kinds.insert(kind_of(row.placement));
    }
  }
  constexpr std::size_t kFewest = 3;
  constexpr std::size_t kMost = 12;  // More would only take time.
  if (kinds.size() < kFewest || kinds.size() > kMost) {
    return std::nullopt;
  }
  double sum = 0;
  double count = 0;
  for (const std::string& kind : kinds) {
    const StepTimeFit fit = fitter.fit(whole.compute_noise, whole.run_noise, kind);
    for (const StepTimeRow& row : table.rows) {
      if (has_several_ranks(row) && kind_of(row.placement) == kind) {
        const StepTimeParts parts =
            step_time(fit.job,
                      coefficients_of(fit, fit.posterior.mode),
                      compute_of(fit, fit.posterior.mode, compute_point(fit.job, row)),
                      row.placement,
                      work_spread(row));
        sum += std::abs(parts.step / (row.step_s - row.data_s.value_or(0)) - 1);
        count += 1;
      }
    }
  }
  return sum / count;
}

void check_table(const StepTimeTable& table, bool links_are_known) {
  if (table.rows.size() < 2) {
    throw InputError(SourcePlace{table.path},
                     "one row tells one step time and nothing of others; time two placements at "
                     "least, one of them a rank alone");
  }
  if (!links_are_known && std::ranges::none_of(table.rows, has_several_ranks)) {
    throw InputError(SourcePlace{table.path},
                     "all rows are of a rank alone, which says nothing of links; time a step on "
                     "two ranks, or give the links of another job on this cluster with --links");
  }
  std::set<std::string> kinds;
  for (const StepTimeRow& row : table.rows) {
    kinds.insert(kind_of(row.placement));
  }
  if (!links_are_known && kinds.size() == 1) {
    throw InputError(SourcePlace{table.path},
                     fmt::format("all rows are of one placement, {}: nothing tells compute from "
                                 "communication; time a rank alone, too",
                                 *kinds.begin()));
  }
}

void check_speeds(const StepTimeTable& table, const StepTimeFit& fit) {
  constexpr double kSlowest = 1.2e7;  // Ethernet of 100 Mbit/s.
  constexpr double kFastest = 2e12;   // Twice NVLink's fifth generation.
  const LinkSpeeds links = coefficients_of(fit, fit.posterior.mode).links;
  for (const bool one_node : {true, false}) {
    const bool used = std::ranges::any_of(table.rows, [&](const StepTimeRow& row) {
      return has_several_ranks(row) && (row.placement.nodes() == 1) == one_node;
    });
    const double speed = one_node ? links.intra_bytes_per_s : links.inter_bytes_per_s;
    if (used && (speed < kSlowest || speed > kFastest)) {
      throw InputError(
          SourcePlace{table.path},
          fmt::format("gradients would move at {:.3g} MB/s {}, which no link does: are "
                      "the times in seconds (step_s) or milliseconds (step_ms)? Are "
                      "these the gradients of this model?",
                      speed * 1e-6,
                      one_node ? "inside a node" : "between nodes"));
    }
  }
}

}  // namespace

StepTimeCoefficients coefficients_of(const StepTimeFit& /*fit*/, std::span<const double> vector) {
  StepTimeCoefficients result;
  result.several_ranks = vector[kSeveral];
  result.per_doubling = std::max(vector[kPerDoubling], -0.05);
  result.forward_share = std::clamp(vector[kForward], 0.01, 0.99);
  result.optimizer_share = std::clamp(vector[kOptimizer], 0.0, 0.9);
  result.interference = std::max(vector[kInterference], 0.0);
  result.links = {std::exp(vector[kIntra]),
                  std::exp(vector[kIntraHalf]),
                  std::exp(vector[kInter]),
                  std::exp(vector[kInterHalf]),
                  std::exp(vector[kTwoNodes]),
                  vector[kNodes],
                  vector[kCrowding]};
  return result;
}

double compute_of(const StepTimeFit& fit, std::span<const double> vector, std::size_t compute) {
  const ComputePoint& point = fit.job.compute[compute];
  if (point.timed) {
    return point.seconds;
  }
  const auto before = std::count_if(fit.job.compute.begin(),
                                    fit.job.compute.begin() + static_cast<std::ptrdiff_t>(compute),
                                    [](const ComputePoint& other) { return !other.timed; });
  return point.seconds * std::exp(vector[kShared + static_cast<std::size_t>(before)]);
}

StepTimePrediction predict_step_time(const StepTimeFit& fit,
                                     std::size_t compute,
                                     const Placement& placement,
                                     double spread) {
  const std::vector<double>& mode = fit.posterior.mode;
  const auto step = [&](std::span<const double> vector) {
    return step_time(
        fit.job, coefficients_of(fit, vector), compute_of(fit, vector, compute), placement, spread);
  };
  StepTimePrediction result;
  result.parts = step(mode);
  for (std::size_t i = 0; i < mode.size(); ++i) {
    constexpr double kDifference = 1e-3;
    std::vector<double> above = mode;
    std::vector<double> below = mode;
    above[i] += kDifference;
    below[i] -= kDifference;
    result.gradient.push_back(std::log(step(above).step / step(below).step) / (2 * kDifference));
  }
  const double share = communication_share(fit, mode, compute, placement);
  result.deviation = std::sqrt(variance_along(fit.posterior.covariance, result.gradient) +
                               fit.compute_noise * fit.compute_noise +
                               fit.run_noise * fit.run_noise * share * share);
  return result;
}

std::vector<double> told_of_prior(const StepTimeFit& fit) {
  std::vector<double> told = deviations_by_data(fit.posterior.covariance, fit.priors);
  for (std::size_t i = 0; i < told.size(); ++i) {
    told[i] /= fit.priors[i];
  }
  return told;
}

StepTimeFit fit_step_times(const StepTimeTable& table,
                           const StepTimeJob& job,
                           const std::optional<FittedLinks>& known,
                           std::optional<StepTimeForm> stated) {
  check_table(table, known.has_value());
  NoisePrior noise;
  if (known) {
    noise.run = std::max(known->run_error, 1e-3);
  }
  const auto fitter_of = [&](StepTimeForm form) {
    StepTimeFitter fitter(table, job, form);
    if (known) {
      fitter.know(*known);
    }
    return fitter;
  };
  std::optional<StepTimeFit> chosen;
  std::vector<double> errors;
  if (stated) {
    chosen = fit_with_noise(table, fitter_of(*stated), noise);
  }
  for (const StepTimeForm form : {StepTimeForm::Plain, StepTimeForm::Interference}) {
    if (stated) {
      break;
    }
    const StepTimeFitter fitter = fitter_of(form);
    StepTimeFit fit = fit_with_noise(table, fitter, noise);
    const auto error = held_out_error(table, fitter, fit);
    if (!error && form != StepTimeForm::Plain) {
      break;
    }
    if (error) {
      errors.push_back(*error);
    }
    constexpr double kBetter = 0.95;
    if (!chosen || errors.back() < kBetter * errors.front()) {
      chosen = std::move(fit);
    }
  }
  chosen->held_out = errors;
  if (!stated && errors.empty() && std::ranges::any_of(table.rows, has_several_ranks)) {
    chosen->no_overlap = fit_with_noise(table, fitter_of(StepTimeForm::NoOverlap), noise).posterior;
  }
  if (known) {
    chosen->ranks = std::max(chosen->ranks, known->ranks);
    chosen->nodes = std::max(chosen->nodes, known->nodes);
  }
  check_speeds(table, *chosen);
  return *std::move(chosen);
}

}  // namespace stepsim
