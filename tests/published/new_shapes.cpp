// What new shapes cost, and steps by sampler, as others reported them.
#include <algorithm>
#include <map>

#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "sim/predict/metrics.h"
#include "tests/published/predicted.h"
#include "tests/published/validation.h"

namespace stepsim::published {
namespace {

/// The times of all steps, ascending, in seconds.
std::vector<double> step_seconds(const std::string& policy) {
  std::vector<double> seconds =
      mapped(step_times(predicted("three_samplers.toml", {}, policy).steps, 0),
             [](const auto& step) { return step.second * 1e-3; });
  std::ranges::sort(seconds);
  return seconds;
}

}  // namespace

Validation fun_asr() {
  Validation result;
  result.title = "Fun-ASR-Nano on one B200: cuDNN plans for every new shape";
  result.source =
      "github.com/modelscope/FunASR/issues/3704, pull/3705: 323 steps of 0.098 s and 59 of about "
      "1.05 s in the mean; plans take 0.44 s forward and 0.55 s backward";
  result.unit = "ms";
  result.decimals = 0;
  result.variants = {"predicted"};
  result.proves =
      "Plans add up with the steps that build them: the mean of the run follows from the number of "
      "new shapes and two figures of one plan.";
  result.cannot =
      "How many shapes are new: the lengths were not published, so 59 of 382 is given. A compiled "
      "decoder (0.068 s) is another program.";
  constexpr const char* kScenario = "fun_asr.toml";
  const Prediction as_it_was = predicted(kScenario, {});
  const double steps = static_cast<double>(as_it_was.shapes->step_ms.size());
  double stalled = 0;
  for (const double ms : as_it_was.shapes->step_ms) {
    stalled = std::max(stalled, ms);
  }
  result.interval_of = "predicted";
  result.figures = {
      {"mean step as it was",
       245,
       {as_it_was.summary.step_time_ms.mean},
       predicted_interval(kScenario, {})},
      {"a step with a new shape", 1050, {stalled}},
      {"59 new shapes' share of the time, in thousandths",
       59 * (1050.0 - 98) / (245.0 * 382) * 1000,
       {sum_of(as_it_was.shapes->lost_ms) / (as_it_was.summary.step_time_ms.mean * steps) * 1000}},
      {"mean step, cuDNN off",
       100,
       {predicted_ms(kScenario, {"new_shapes.cudnn_deprioritized=true"})},
       predicted_interval(kScenario, {"new_shapes.cudnn_deprioritized=true"})}};
  return result;
}

Validation three_samplers() {
  Validation result;
  result.title = "Three samplers, Qwen2.5-0.5B on two RTX 5090";
  result.source =
      "github.com/huggingface/transformers/pull/47340; 185 ms a step and 21.5 us a padded token "
      "are "
      "a line through the means of random and group_by_length";
  result.unit = "ms";
  result.decimals = 0;
  result.variants = {"predicted"};
  result.proves =
      "From two means the batches give the third, and how unequal the steps are: the order in the "
      "mean, and batch_rebalance ahead in the 90th percentile.";
  result.cannot =
      "The means of random and group_by_length, which went in; our batches are other draws of the "
      "same lengths. Our batch_rebalance makes the four micro-batches of a step alike and comes "
      "out "
      "10 to 15 % too slow: the best cut for two ranks has unequal ones that are paired.";
  const std::map<std::string, std::vector<double>> published = {
      {"random", {440, 437, 540}},
      {"group_by_length", {270, 232, 395}},
      {"batch_rebalance", {269, 256, 287}}};
  for (const auto& [policy, figures] : published) {
    const std::vector<double> seconds = step_seconds(policy);
    result.figures.push_back({policy + ", mean", figures[0], {mean(seconds) * 1e3}});
    result.figures.push_back({policy + ", median", figures[1], {quantile(seconds, 0.5) * 1e3}});
    result.figures.push_back({policy + ", p90", figures[2], {quantile(seconds, 0.9) * 1e3}});
  }
  return result;
}

}  // namespace stepsim::published
