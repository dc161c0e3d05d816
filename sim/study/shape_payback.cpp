#include "sim/study/shape_payback.h"

#include <algorithm>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

double lost_ms(const Prediction& prediction) {
  return prediction.shapes ? sum_of(prediction.shapes->lost_ms) : 0;
}

/// [step] Useful tokens per millisecond from the first step to the end of this one. `cold`: with
/// first meetings.
std::vector<double> rates(const Prediction& prediction) {
  std::vector<double> tokens(prediction.shapes->step_ms.size(), 0.0);
  for (const RankStepResult& row : prediction.steps) {
    tokens[at(row.step)] += static_cast<double>(row.useful_tokens);
  }
  std::vector<double> result;
  double done = 0;
  double passed_ms = 0;
  for (std::size_t step = 0; step < tokens.size(); ++step) {
    done += tokens[step];
    passed_ms += prediction.shapes->step_ms[step];
    result.push_back(passed_ms > 0 ? done / passed_ms : 0);
  }
  return result;
}

/// Useful tokens per millisecond with every shape known.
double warm_rate(const Prediction& prediction) {
  const double ms = prediction.shapes->warm_ms;
  return ms > 0 ? prediction.summary.useful_tokens_per_step / ms : 0;
}

std::optional<int> steps_until(const std::vector<double>& rate, const std::vector<double>& other) {
  const std::size_t steps = std::min(rate.size(), other.size());
  std::size_t first = steps;
  while (first > 0 && rate[first - 1] >= other[first - 1]) {
    --first;
  }
  return first < steps ? std::optional(static_cast<int>(first) + 1) : std::nullopt;
}

}  // namespace

std::vector<ShapePayback> shape_paybacks(std::span<const Prediction> predictions) {
  const bool all = std::ranges::all_of(
      predictions, [](const Prediction& prediction) { return prediction.shapes.has_value(); });
  if (predictions.empty() || !all) {
    return {};
  }
  const auto reference = std::ranges::min_element(predictions, {}, lost_ms);
  const std::vector<double> reference_rates = rates(*reference);
  return mapped(predictions, [&](const Prediction& prediction) {
    ShapePayback payback;
    payback.is_reference = &prediction == &*reference;
    payback.slower_warm = warm_rate(prediction) < warm_rate(*reference);
    if (!payback.is_reference) {
      payback.steps = steps_until(rates(prediction), reference_rates);
    }
    return payback;
  });
}

}  // namespace stepsim
