#include "sim/study/shape_cure.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/predict/predict.h"
#include "sim/predict/step_cost.h"
#include "sim/study/ladder.h"

namespace stepsim {
namespace {

/// What shapes cost the job where there is no noise.
ShapeSummary without_noise(const Job& job) {
  PredictOptions options;
  options.noise_runs = 0;
  return *predict(job, options).shapes;
}

Job padded(const Job& job, const PaddedEpoch& row) {
  return job.padded(row.rule == PaddingRule::Multiple ? row.number : 1, row.rungs);
}

std::string key_of(const PaddedEpoch& row) {
  switch (row.rule) {
    case PaddingRule::Multiple:
      return fmt::format("pad_to_multiple_of = {}", row.number);
    case PaddingRule::Rungs:
    case PaddingRule::Optimum:
      return fmt::format("pad_to_lengths = [{}]", fmt::join(row.rungs, ", "));
    case PaddingRule::Longest:
      return "without pad_to_multiple_of and pad_to_lengths";
    case PaddingRule::Own:
      break;
  }
  return "";
}

}  // namespace

ShapeCure cheapest_cure(const Job& job, const Prediction& prediction) {
  constexpr double kSmallestCure = 0.01;  // Two live runs of one setting differ by more.
  ShapeCure cure;
  if (!prediction.shapes || !prediction.shapes->epoch || prediction.shapes->warmed_up) {
    return cure;
  }
  const ShapeSummary& shapes = *prediction.shapes;
  cure.now_ms = cure.cured_ms = shapes.epoch->step_ms;
  double best = cure.now_ms * (1 - kSmallestCure);
  const double warm_up_ms =
      shapes.warm_ms + shapes.epoch->warm_up_seconds * 1e3 / shapes.epoch->steps;
  if (warm_up_ms < best) {
    best = cure.cured_ms = warm_up_ms;
    cure.key = "new_shapes.warm_up = true";
  }
  const auto costs = new_shape_cost(job.scenario(), *job.profile());
  if (!costs) {
    return cure;
  }
  LadderOptions options;
  options.shape_seconds = costs->seconds;
  options.key = costs->key;
  options.multiples = {8, 64, 128};
  options.rungs = {8};
  const LadderStudy study = study_ladders(job, options);
  if (!study.skipped.empty()) {
    return cure;
  }
  // The study's steps are those of an epoch, without noise, and pay the whole price of a shape. So
  // the few with the least estimates are predicted.
  constexpr std::size_t kPredicted = 2;
  const bool own = study.rows.size() > 1 && study.rows[1].rule == PaddingRule::Own;
  const double as_simulated = shapes.warm_ms / study.rows[own ? 1 : 0].steady_step_ms;
  std::vector<std::pair<double, const PaddedEpoch*>> estimates;
  for (const PaddedEpoch& row : study.rows) {
    const double lost = row.shape_seconds * 1e3 / static_cast<double>(study.steps);
    const double ms = as_simulated * row.steady_step_ms + lost * (1 - shapes.hidden);
    if (row.refused.empty() && !key_of(row).empty() && ms < best) {
      estimates.emplace_back(ms, &row);
    }
  }
  if (estimates.empty()) {
    return cure;
  }
  std::ranges::sort(estimates, {}, &std::pair<double, const PaddedEpoch*>::first);
  estimates.resize(std::min(estimates.size(), kPredicted));
  const double noise = shapes.warm_ms / without_noise(job).warm_ms;
  for (const auto& [estimate, row] : estimates) {
    const ShapeSummary cured = without_noise(padded(job, *row));
    const double ms = noise * cured.warm_ms + (cured.epoch->step_ms - cured.warm_ms);
    if (ms < best) {
      best = cure.cured_ms = ms;
      cure.key = key_of(*row);
    }
  }
  return cure;
}

}  // namespace stepsim
