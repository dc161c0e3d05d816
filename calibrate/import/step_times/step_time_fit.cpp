#include "calibrate/import/step_times/step_time_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "calibrate/import/step_times/step_time_prior.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

/// How far links that another job was fitted to may differ for this one, as a fraction.
constexpr double kOtherJob = 0.1;

bool has_several_ranks(const StepTimeRow& row) {
  return row.placement.ranks() > 1;
}

/// Placements that differ in the order of their nodes count as one.
std::string kind_of(const Placement& placement) {
  std::vector<int> nodes(placement.node_ranks().begin(), placement.node_ranks().end());
  std::ranges::sort(nodes);
  return text_of(Placement(std::move(nodes)));
}

/// The speed at which gradients would have to move for the middle row, if a third of its compute
/// did not hide them: where the search for the bandwidth starts. 0 without such rows.
double crude_bandwidth(const StepTimeTable& table, const StepTimeJob& job, bool one_node) {
  double bytes = 0;
  for (const double bucket : job.bucket_bytes) {
    bytes += bucket;
  }
  std::vector<double> speeds;
  for (const StepTimeRow& row : table.rows) {
    if (!has_several_ranks(row) || (row.placement.nodes() == 1) != one_node) {
      continue;
    }
    const double compute = job.compute[compute_point(job, row)].seconds;
    constexpr double kInFront = 0.35;
    constexpr double kLeast = 0.05;
    const double seconds = std::max(row.step_s - kInFront * compute, kLeast * row.step_s);
    speeds.push_back(ring_bytes_per_rank(CollectiveKind::AllReduce, bytes, row.placement.ranks()) /
                     seconds);
  }
  return speeds.empty() ? 0 : quantile(speeds, 0.5);
}

std::vector<double> as_vector(const LinkSpeeds& links) {
  return {std::log(links.intra_bytes_per_s),
          std::log(std::max(links.intra_half_bytes, 1.0)),
          std::log(links.inter_bytes_per_s),
          std::log(std::max(links.inter_half_bytes, 1.0)),
          std::log(links.two_nodes),
          links.per_doubling_of_nodes,
          links.per_doubling_of_ranks};
}

/// The fit of one table in one form, with given noise.
class StepTimeFitter {
 public:
  StepTimeFitter(const StepTimeTable& table, const StepTimeJob& job, StepTimeForm form)
      : table_(table), job_(job), form_(form), priors_(step_time_priors()) {
    double inside = crude_bandwidth(table, job, true);
    double between = crude_bandwidth(table, job, false);
    constexpr double kNobodyKnows = 1e9;
    constexpr double kTwoOrMore = 1.2;  // Between the speed of two nodes and that of more.
    between = between > 0 ? between * kTwoOrMore : inside;
    inside = inside > 0 ? inside : between;
    priors_[kIntra].mean = std::log(inside > 0 ? inside : kNobodyKnows);
    priors_[kInter].mean = std::log(between > 0 ? between : kNobodyKnows);
    std::vector<double> backward;
    for (const StepTimeRow& row : table.rows) {
      if (row.backward_s && !has_several_ranks(row)) {
        const double passes =
            job.compute[compute_point(job, row)].seconds * (1 - priors_[kOptimizer].mean);
        backward.push_back(*row.backward_s / passes);
      }
    }
    if (!backward.empty()) {
      constexpr double kMeasuredShare = 0.01;
      priors_[kForward].mean = std::clamp(1 - quantile(backward, 0.5), 0.05, 0.95);
      priors_[kForward].deviation = kMeasuredShare;
    }
    if (form == StepTimeForm::NoOverlap) {
      constexpr double kStandsStill = 50;  // Compute beside a collective takes so much longer.
      priors_[kInterference].mean = kStandsStill;
    }
    for (const ComputePoint& point : job.compute) {
      if (!point.timed) {
        constexpr double kBetweenTimed = 0.1;
        constexpr double kNoneTimed = 0.5;
        const bool some = std::ranges::any_of(job.compute, &ComputePoint::timed);
        priors_.push_back({"compute of a batch", 0, some ? kBetweenTimed : kNoneTimed});
      }
    }
  }

  /// Takes the links of another job for known.
  void know(const FittedLinks& links) {
    const std::vector<double> mean = as_vector(links.fitted);
    const auto draws = mapped(links.draws, as_vector);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      double square = kOtherJob * kOtherJob * (i < 5 ? 1 : 0.01);
      for (const auto& draw : draws) {
        square += (draw[i] - mean[i]) * (draw[i] - mean[i]) / static_cast<double>(draws.size());
      }
      links_are_known_ = true;
      priors_[kIntra + i].mean = mean[i];
      priors_[kIntra + i].deviation = std::sqrt(square);
    }
  }

  /// `left_out`: the kind of placement whose rows do not count; empty: all count.
  [[nodiscard]] StepTimeFit fit(double compute_noise,
                                double run_noise,
                                const std::string& left_out = {}) const {
    StepTimeFit fit;
    fit.job = job_;
    fit.form = form_;
    fit.compute_noise = compute_noise;
    fit.run_noise = run_noise;
    fit.links_are_known = links_are_known_;
    for (std::size_t i = 0; i < priors_.size(); ++i) {
      fit.priors.push_back(prior_deviation(i));
    }
    std::vector<FittedRow> rows;
    for (const StepTimeRow& row : table_.rows) {
      if (has_several_ranks(row) && kind_of(row.placement) != left_out) {
        rows.push_back({&row, compute_point(job_, row)});
        fit.ranks = std::max(fit.ranks, row.placement.ranks());
        fit.nodes = std::max(fit.nodes, row.placement.nodes());
      }
    }
    std::vector<double> start = mapped(priors_, &StepTimePrior::mean);
    constexpr int kRounds = 4;  // The noise of a row depends on how much of it is communication.
    for (int round = 0; round < kRounds; ++round) {
      weigh(fit, start, rows);
      fit.posterior = fit_posterior(
          [&](std::span<const double> vector) { return residuals(fit, vector, rows); }, start);
      start = fit.posterior.mode;
    }
    return fit;
  }

  /// The standard deviation of a single row's logarithm, and how much the step grows with all
  /// collectives of the run.
  [[nodiscard]] static double noise_of(const StepTimeFit& fit,
                                       std::span<const double> vector,
                                       const StepTimeRow& row,
                                       double own_run) {
    const double share =
        communication_share(fit, vector, compute_point(fit.job, row), row.placement);
    return std::hypot(fit.compute_noise, own_run * share);
  }

  /// The derivative of the step's logarithm by that of all collectives.
  [[nodiscard]] static double communication_share(const StepTimeFit& fit,
                                                  std::span<const double> vector,
                                                  std::size_t compute,
                                                  const Placement& placement) {
    constexpr double kStep = 0.01;
    StepTimeCoefficients coefficients = coefficients_of(fit, vector);
    const double seconds = compute_of(fit, vector, compute);
    const double before = step_time(fit.job, coefficients, seconds, placement).step;
    coefficients.links.intra_bytes_per_s *= std::exp(-kStep);
    coefficients.links.inter_bytes_per_s *= std::exp(-kStep);
    return std::log(step_time(fit.job, coefficients, seconds, placement).step / before) / kStep;
  }

 private:
  /// A row with several ranks, and how many standard deviations a unit of its residuals is.
  struct FittedRow {
    const StepTimeRow* row = nullptr;
    std::size_t compute = 0;
    double step_scale = 1;
    double compute_scale = 1;  ///< Of the step without its exposed communication.
  };

  void weigh(const StepTimeFit& fit,
             std::span<const double> vector,
             std::vector<FittedRow>& rows) const {
    std::map<std::string, int> of_run;
    for (const FittedRow& fitted : rows) {
      ++of_run[text_of(fitted.row->placement)];
    }
    for (FittedRow& fitted : rows) {
      const StepTimeRow& row = *fitted.row;
      const double noise = noise_of(fit, vector, row, fit.run_noise);
      const double own =
          row.sd_s ? *row.sd_s / std::sqrt(static_cast<double>(row.repeats)) / row.step_s : 0;
      const double rows_of_run = of_run[text_of(row.placement)];
      const double independent = 1 / std::sqrt(1 + kCommonToRun * (rows_of_run - 1));
      fitted.step_scale = independent / std::hypot(noise, own);
      fitted.compute_scale = independent / std::hypot(fit.compute_noise, own);
    }
  }

  [[nodiscard]] std::vector<double> residuals(const StepTimeFit& fit,
                                              std::span<const double> vector,
                                              const std::vector<FittedRow>& rows) const {
    // Beyond so many deviations a row counts with the square root of its excess.
    const auto robust = [](double residual) {
      constexpr double kOutlier = 2.5;
      const double size = std::abs(residual);
      return size <= kOutlier
                 ? residual
                 : std::copysign(std::sqrt(kOutlier * (2 * size - kOutlier)), residual);
    };
    const StepTimeCoefficients coefficients = coefficients_of(fit, vector);
    std::vector<double> result;
    for (const FittedRow& fitted : rows) {
      const StepTimeRow& row = *fitted.row;
      const double compute = compute_of(fit, vector, fitted.compute);
      const StepTimeParts parts =
          step_time(fit.job, coefficients, compute, row.placement, work_spread(row));
      const double step = row.step_s - row.data_s.value_or(0);
      result.push_back(robust(std::log(parts.step / step) * fitted.step_scale));
      if (row.sync_s && *row.sync_s < step) {
        const double predicted = std::max(parts.step - parts.sync, 1e-9);
        result.push_back(robust(std::log(predicted / (step - *row.sync_s)) * fitted.compute_scale));
      }
    }
    for (std::size_t i = 0; i < priors_.size(); ++i) {
      result.push_back((vector[i] - priors_[i].mean) / prior_deviation(i));
    }
    return result;
  }

  [[nodiscard]] double prior_deviation(std::size_t coefficient) const {
    constexpr double kFixed = 1e-4;
    const bool fixed = coefficient == kInterference && form_ != StepTimeForm::Interference;
    return fixed ? kFixed : priors_[coefficient].deviation;
  }

  const StepTimeTable& table_;
  const StepTimeJob& job_;
  StepTimeForm form_;
  std::vector<StepTimePrior> priors_;
  bool links_are_known_ = false;  ///< Another job's are their priors.
};

/// Noise before any row was seen, as means and deviations of logarithms. `run`: links that another
/// job was fitted to tell the second.
struct NoisePrior {
  double compute = 0.02;
  double run = 0.07;
};
constexpr double kNoiseSpread = 0.7;

/// Finds the noise that makes the fit's residuals most likely, and fits again with it.
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
      const double share = StepTimeFitter::communication_share(
          fit, fit.posterior.mode, compute_point(fit.job, row), row.placement);
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
  return fit;
}

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
  const double share = StepTimeFitter::communication_share(fit, mode, compute, placement);
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
