#include "sim/study/training/training_plan.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "costmodel/base/mapped.h"
#include "costmodel/model/op_flops.h"
#include "costmodel/model/transformer.h"
#include "sim/batching/lengths.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/step_cost.h"

namespace stepsim {

namespace {

constexpr double kHourSeconds = 3600;
constexpr double kTera = 1e12;

bool is_product(const Op& op) {
  return op.op_class == OpClass::Gemm || op.op_class == OpClass::AttentionScores ||
         op.op_class == OpClass::AttentionContext || op.op_class == OpClass::Attention;
}

struct Card {
  std::string_view name;  ///< A part of the device's name.
  double tflops;          ///< Dense, in bf16; of V100 in fp16.
};

/// The makers' data sheets: dense tensor-core rates without sparsity. The first that fits counts.
constexpr Card kCards[] = {{"H100 PCIe", 756},
                           {"H100 NVL", 835},
                           {"H100", 989},
                           {"H200", 989},
                           {"H800", 989},
                           {"B200", 2250},
                           {"A100", 312},
                           {"A800", 312},
                           {"L40S", 362},
                           {"V100", 125}};

}  // namespace

std::optional<double> flops_per_token(const Scenario& scenario,
                                      const std::vector<std::int64_t>& lengths) {
  if (scenario.flops_per_token) {
    return scenario.flops_per_token;
  }
  const TransformerConfig& model = scenario.described ? *scenario.described : scenario.model;
  if (scenario.times || model.family == ModelFamily::Blocks || scenario.model.tokens_unknown) {
    return std::nullopt;
  }
  std::map<std::int64_t, double> counts;
  for (const std::int64_t length : lengths) {
    ++counts[length];
  }
  constexpr double kPasses = 3;  // The backward has two products for each of the forward's.
  const StepOps ops = step_ops(model);
  double flops = 0;
  double tokens = 0;
  for (const auto& [length, count] : counts) {
    const BatchShape sample = batch_shape(std::vector<std::int64_t>{length}, model.window);
    for (const Op& op : ops.forward) {
      flops += is_product(op) ? count * kPasses * op_flops(op, sample) : 0;
    }
    tokens += count * static_cast<double>(length);
  }
  return flops > 0 && tokens > 0 ? std::optional(flops / tokens) : std::nullopt;
}

std::optional<double> peak_flops(const std::string& device, Dtype dtype) {
  if (element_size(dtype) != 2) {
    return std::nullopt;
  }
  for (const Card& card : kCards) {
    if (device.find(card.name) != std::string::npos) {
      return card.tflops * kTera;
    }
  }
  return std::nullopt;
}

std::vector<TrainingPlan> training_plans(const Scenario& scenario,
                                         const Profile& profile,
                                         const std::vector<Prediction>& predictions,
                                         const EpochGoal& goal) {
  const std::optional<double> peak = scenario.peak_tflops
                                         ? std::optional(*scenario.peak_tflops * kTera)
                                         : peak_flops(profile.device, scenario.model.dtype);
  KnownLengths known;
  return mapped(predictions, [&](const Prediction& prediction) {
    TrainingPlan plan;
    plan.policy = prediction.policy;
    plan.epochs = goal.epochs.value_or(1);
    const PredictionSummary& summary = prediction.summary;
    if (prediction.out_of_memory || !(summary.step_time_ms.mean > 0)) {
      return plan;
    }
    const BatchingPolicy& policy = find_policy(scenario, prediction.policy);
    // Recorded batches are a part of the data.
    const std::vector<std::int64_t> lengths = policy.played() != nullptr
                                                  ? known.of(scenario.lengths, scenario.samples)
                                                  : data_lengths(scenario, policy, known);
    // The parts that a policy cuts samples into have fewer pairs than the samples.
    const bool is_known = scenario.flops_per_token || !policy.cuts();
    if (const auto flops = is_known ? flops_per_token(scenario, lengths) : std::nullopt) {
      plan.rank_flops = *flops * summary.useful_tokens_per_s() / scenario.ranks;
      if (peak) {
        plan.mfu = *plan.rank_flops / *peak;
      }
    }
    const double tokens =
        sum_of(lengths, [](const std::int64_t length) { return static_cast<double>(length); });
    plan.hours = plan.epochs * tokens / summary.useful_tokens_per_s() / kHourSeconds;
    plan.gpu_hours = plan.hours * scenario.ranks;
    if (goal.gpu_hour) {
      plan.money = plan.gpu_hours * *goal.gpu_hour;
    }
    return plan;
  });
}

}  // namespace stepsim
