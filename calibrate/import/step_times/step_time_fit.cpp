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
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

/// Mean |error| over the placements with several ranks, each left out in turn; nothing for fewer
/// than three.
std::optional<double> held_out_error(const StepTimeTable& table,
                                     const StepTimeFitter& fitter,
                                     const StepTimeFit& whole) {
  const std::vector<StepTimePoint>& points = whole.job.points;
  const auto kinds_of_points =
      mapped(points, [](const StepTimePoint& point) { return kind_of(point.placement); });
  std::set<std::string> kinds;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].placement.ranks() > 1) {
      kinds.insert(kinds_of_points[i]);
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
    const std::vector<StepTimeParts> steps = step_times(fit, fit.posterior.mode);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const StepTimeRow& row = table.rows[i];
      const std::size_t point = fit.job.point_of_row[i];
      if (kinds_of_points[point] == kind) {
        const double step = steps[point].step;
        sum += std::abs(step / (row.step_s - row.data_s.value_or(0)) - 1);
        count += 1;
      }
    }
  }
  return sum / count;
}

/// A fit with the fitter that made it.
struct FittedForm {
  StepTimeFitter fitter;
  StepTimeFit fit;
};

/// Fits of one table in any form.
class StepTimeForms {
 public:
  StepTimeForms(const StepTimeTable& table,
                const StepTimeJob& job,
                const std::optional<FittedLinks>& known)
      : table_(table), job_(job), known_(known), growth_(node_growth(table, job)) {
    if (known) {
      noise_.run = std::max(known->run_error, 1e-3);
    }
  }

  /// The fit that the rows favour of two: steps inside a node are longer for the links, or for
  /// compute that grows with the ranks of a node. Where they hardly favour one, both stand.
  [[nodiscard]] FittedForm fit(StepTimeForm form) const {
    FittedForm best = grown(form);
    StepTimeFitter fitter = best.fitter;
    if (!fitter.start_from_host()) {
      return best;
    }
    StepTimeFit other = settled(fitter);
    if (other.cost < best.fit.cost) {
      std::swap(other, best.fit);
      std::swap(other.alternatives, best.fit.alternatives);
      best.fitter = fitter;
    }
    constexpr double kClear = 4;    // Seven times as likely.
    constexpr double kApart = 0.1;  // Times of the host that make a difference.
    const double apart = std::abs(other.posterior.mode[kHost] - best.fit.posterior.mode[kHost]);
    if (apart > kApart && other.cost < best.fit.cost + kClear) {
      best.fit.alternatives.push_back(
          {StepTimeDoubt::HostTime, std::move(other.posterior), std::move(other.bounds)});
    }
    return best;
  }

 private:
  /// By whether compute grows with the ranks of a node.
  [[nodiscard]] FittedForm grown(StepTimeForm form) const {
    FittedForm best = with_growth(form, 0);
    constexpr double kApart = 0.03;  // Growths of compute that make a difference.
    if (growth_ < kApart) {
      return best;
    }
    FittedForm other = with_growth(form, growth_);
    if (other.fit.cost < best.fit.cost) {
      std::swap(best, other);
    }
    constexpr double kClear = 4;  // Seven times as likely.
    const double apart = std::abs(other.fit.posterior.mode[kPerDoublingOfNode] -
                                  best.fit.posterior.mode[kPerDoublingOfNode]);
    if (apart > kApart && other.fit.cost < best.fit.cost + kClear) {
      best.fit.alternatives.push_back(
          {StepTimeDoubt::NodeGrowth, std::move(other.fit.posterior), std::move(other.fit.bounds)});
    }
    return best;
  }

  [[nodiscard]] FittedForm with_growth(StepTimeForm form, double growth) const {
    StepTimeFitter fitter(table_, job_, form, growth);
    if (known_) {
      fitter.know(*known_);
    }
    StepTimeFit fit = settled(fitter);
    return {std::move(fitter), std::move(fit)};
  }

  /// The fit with its noise, and with what is seen inside a node where nothing else is known.
  StepTimeFit settled(StepTimeFitter& fitter) const {
    StepTimeFit fit = fit_with_noise(table_, fitter, noise_);
    if (!known_ && fit.nodes == 1) {
      // Adapters are chosen for the machine: what is seen inside a node is the best guess there is.
      constexpr double kFastestBetween = 100e9;
      fitter.expect_between(std::min(std::exp(fit.posterior.mode[kIntra]), kFastestBetween));
      fit = fitter.fit(fit.compute_noise, fit.run_noise);
    }
    return fit;
  }

  const StepTimeTable& table_;
  const StepTimeJob& job_;
  const std::optional<FittedLinks>& known_;
  double growth_;
  NoisePrior noise_;
};

/// Whether some rows are on two nodes and none on more, or the other way round: a prior alone tells
/// how the speeds compare.
bool two_nodes_are_assumed(const StepTimeTable& table) {
  const auto some = [&](auto&& holds) {
    return std::ranges::any_of(
        table.rows, [&](const StepTimeRow& row) { return holds(row.placement.nodes()); });
  };
  return some([](int nodes) { return nodes == 2; }) != some([](int nodes) { return nodes > 2; });
}

/// Steps on several nodes are longer than on one for their links, or since a job's ranks wait for
/// one another more often: where the rows hardly tell, both stand.
void add_growth(FittedForm& chosen) {
  StepTimeFitter fitter = chosen.fitter;
  const double surprise = fitter.expect_growth();
  StepTimeFit other = fitter.fit(chosen.fit.compute_noise, chosen.fit.run_noise);
  constexpr double kClear = 4;    // Seven times as likely.
  constexpr double kApart = 0.3;  // Speeds that make a difference.
  const double apart = other.posterior.mode[kInter] - chosen.fit.posterior.mode[kInter];
  const double before = chosen.fitter.fit(chosen.fit.compute_noise, chosen.fit.run_noise).cost;
  if (apart > kApart && other.cost + surprise < before + kClear) {
    chosen.fit.alternatives.push_back(
        {StepTimeDoubt::JobGrowth, std::move(other.posterior), std::move(other.bounds)});
  }
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

/// The compute of a batch that was not timed; `place` is that of its factor, from kUntimed on.
double untimed_seconds(const ComputePoint& point,
                       std::span<const double> vector,
                       std::size_t place) {
  const double device = point.seconds * std::exp(vector[kSample]);
  const double host = point.host_s * std::exp(vector[kHost]);
  return untimed_compute(device, host) * std::exp(vector[kUntimed + place]);
}

}  // namespace

StepTimeCoefficients coefficients_of(const StepTimeFit& /*fit*/, std::span<const double> vector) {
  StepTimeCoefficients result;
  result.several_ranks = vector[kSeveral];
  result.per_doubling = std::max(vector[kPerDoubling], -0.05);
  result.per_doubling_of_node = std::max(vector[kPerDoublingOfNode], -0.05);
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
  return untimed_seconds(point, vector, static_cast<std::size_t>(before));
}

std::vector<double> compute_below(const StepTimeFit& fit, std::span<const double> vector) {
  return mapped(fit.job.below, [&](const ComputePoint& point) {
    return untimed_seconds(point, vector, 0);  // As far off as the smallest batch.
  });
}

StepTimePrediction predict_step_time(const StepTimeFit& fit,
                                     std::size_t compute,
                                     const Placement& placement,
                                     double spread,
                                     std::int64_t micro_batches) {
  const std::vector<double>& mode = fit.posterior.mode;
  const auto step = [&](std::span<const double> vector) {
    return step_time(fit.job,
                     coefficients_of(fit, vector),
                     compute_of(fit, vector, compute),
                     placement,
                     spread,
                     micro_batches);
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
  const double share = communication_share(fit, mode, compute, placement, micro_batches);
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

bool leaves_open(const StepTimeFit& fit, StepTimeDoubt doubt) {
  return std::ranges::find(fit.alternatives, doubt, &StepTimeAlternative::doubt) !=
         fit.alternatives.end();
}

StepTimeFit fit_step_times(const StepTimeTable& table,
                           const StepTimeJob& job,
                           const std::optional<FittedLinks>& known,
                           std::optional<StepTimeForm> stated) {
  check_table(table, known.has_value());
  const StepTimeForms forms(table, job, known);
  FittedForm chosen = forms.fit(stated.value_or(StepTimeForm::Plain));
  if (!stated) {
    const auto plain = held_out_error(table, chosen.fitter, chosen.fit);
    std::vector<double> errors;
    if (plain) {
      FittedForm slowed = forms.fit(StepTimeForm::Interference);
      errors = {*plain, held_out_error(table, slowed.fitter, slowed.fit).value_or(*plain)};
      constexpr double kBetter = 0.95;
      if (errors[1] < kBetter * errors[0]) {
        chosen = std::move(slowed);
      }
    } else if (std::ranges::any_of(table.rows, has_several_ranks)) {
      chosen.fit.alternatives.push_back(
          {StepTimeDoubt::Overlap, forms.fit(StepTimeForm::NoOverlap).fit.posterior});
    }
    chosen.fit.held_out = errors;
  }
  if (!known && two_nodes_are_assumed(table)) {
    chosen.fitter.expect_one_speed();
    StepTimeFit other = chosen.fitter.fit(chosen.fit.compute_noise, chosen.fit.run_noise);
    const std::vector<double>& mode = chosen.fit.posterior.mode;
    constexpr double kApart = 0.1;  // The fit expects it already.
    if (std::abs(other.posterior.mode[kTwoNodes] - mode[kTwoNodes]) > kApart) {
      chosen.fit.alternatives.push_back(
          {StepTimeDoubt::TwoNodes, std::move(other.posterior), std::move(other.bounds)});
    }
  }
  if (!known && chosen.fit.nodes > 1) {
    add_growth(chosen);
  }
  if (known) {
    chosen.fit.ranks = std::max(chosen.fit.ranks, known->ranks);
    chosen.fit.nodes = std::max(chosen.fit.nodes, known->nodes);
  }
  check_speeds(table, chosen.fit);
  return std::move(chosen.fit);
}

}  // namespace stepsim
