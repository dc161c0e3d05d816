#include "calibrate/import/step_times/step_time_advice.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

int fullest_node(const StepTimeTable& table) {
  int fullest = 1;
  for (const StepTimeRow& row : table.rows) {
    fullest = std::max(fullest, row.placement.fullest());
  }
  return fullest;
}

Placement equal_nodes(int nodes, int ranks) {
  return Placement(std::vector<int>(static_cast<std::size_t>(nodes), ranks));
}

/// The smallest and the largest batch.
std::vector<std::size_t> both_ends(const StepTimeFit& fit) {
  std::vector<std::size_t> ends = {0};
  if (fit.job.compute.size() > 1) {
    ends.push_back(fit.job.compute.size() - 1);
  }
  return ends;
}

/// The covariance of all that the rows allow, as far as two nodes against more are concerned.
std::vector<std::vector<double>> whole_covariance(const StepTimeFit& fit) {
  std::vector<std::vector<double>> whole = fit.posterior.covariance;
  for (const StepTimeAlternative& other : fit.alternatives) {
    if (other.doubt != StepTimeDoubt::TwoNodes) {
      continue;  // Of the others no derivative holds.
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (std::size_t j = 0; j < whole.size(); ++j) {
        const double apart = (other.posterior.mode[i] - fit.posterior.mode[i]) *
                             (other.posterior.mode[j] - fit.posterior.mode[j]);
        whole[i][j] = (whole[i][j] + other.posterior.covariance[i][j]) / 2 + apart / 4;
      }
    }
  }
  return whole;
}

/// Mean half width over the predictions with this covariance.
double mean_width(const StepTimeFit& fit,
                  const std::vector<StepTimePrediction>& predictions,
                  const std::vector<std::vector<double>>& covariance) {
  double sum = 0;
  for (const StepTimePrediction& one : predictions) {
    const double fitted = variance_along(fit.posterior.covariance, one.gradient);
    const double noise = one.deviation * one.deviation - fitted;
    const double variance = std::max(variance_along(covariance, one.gradient), 0.0);
    sum += std::exp(kDeviationsOf90 * std::sqrt(variance + noise)) - 1;
  }
  return sum / static_cast<double>(predictions.size());
}

}  // namespace

std::vector<NextRun> rank_next_runs(const StepTimeFit& fit,
                                    std::span<const StepTimeRun> candidates,
                                    std::span<const StepTimeQuestion> questions) {
  const auto wanted = mapped(questions, [&](const StepTimeQuestion& question) {
    return predict_step_time(fit, question.compute, question.placement, 0, question.micro_batches);
  });
  const auto whole = whole_covariance(fit);
  const double before = mean_width(fit, wanted, whole);
  std::vector<NextRun> runs;
  for (const StepTimeRun& candidate : candidates) {
    auto covariance = whole;
    const double rows = 1 + kCommonToRun * (static_cast<double>(candidate.compute.size()) - 1);
    for (const std::size_t compute : candidate.compute) {
      const StepTimePrediction one =
          predict_step_time(fit, compute, candidate.placement, 0, candidate.micro_batches);
      const double fitted = variance_along(fit.posterior.covariance, one.gradient);
      const double noise = std::sqrt((one.deviation * one.deviation - fitted) * rows);
      covariance = updated_covariance(covariance, one.gradient, noise);
    }
    runs.push_back({candidate, before, mean_width(fit, wanted, covariance)});
  }
  std::ranges::stable_sort(runs, {}, &NextRun::after);
  if (!runs.empty()) {
    const double gained = runs.front().before - runs.front().after;
    constexpr double kAlike = 0.9;
    const auto as_good = std::ranges::partition_point(
        runs, [&](const NextRun& run) { return run.before - run.after >= kAlike * gained; });
    std::stable_sort(runs.begin(), as_good, [](const NextRun& a, const NextRun& b) {
      return a.run.placement.ranks() < b.run.placement.ranks();
    });
  }
  return runs;
}

std::vector<StepTimeRun> candidate_runs(const StepTimeFit& fit, const StepTimeTable& table) {
  std::set<std::string> timed;
  for (const StepTimeRow& row : table.rows) {
    timed.insert(text_of(row.placement));
  }
  const int fullest = fullest_node(table);
  std::vector<StepTimeRun> runs;
  for (const int nodes : {1, 2, 3, 4}) {
    for (const int ranks : std::set<int>{1, std::min(2, fullest), fullest}) {
      const Placement placement = equal_nodes(nodes, ranks);
      if (timed.insert(text_of(placement)).second) {
        runs.push_back({placement, both_ends(fit), common_micro_batches(table)});
      }
    }
  }
  return runs;
}

std::vector<StepTimeQuestion> usual_questions(const StepTimeFit& fit, const StepTimeTable& table) {
  constexpr int kNodes = 8;
  const int nodes = std::max(kNodes, 2 * fit.nodes);
  std::vector<StepTimeQuestion> questions;
  for (const std::size_t compute : both_ends(fit)) {
    questions.push_back(
        {compute, equal_nodes(nodes, fullest_node(table)), common_micro_batches(table)});
  }
  return questions;
}

}  // namespace stepsim
