#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/records/profile.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The FLOPs that a model needs: three times the forward's matrix products (2 FLOPs a
/// multiplication and addition), and attention by the squared length of each sample, or half of it
/// where the kernel leaves masked pairs out. Padding and recomputation do not count.
///
/// Returns: of a mean useful token of samples of these lengths, or what the scenario states of one;
/// nothing where neither it nor the model says so: recorded models without a config.json, tensor
/// lists, steps by stated times.
[[nodiscard]] std::optional<double> flops_per_token(const Scenario& scenario,
                                                    const std::vector<std::int64_t>& lengths);

/// The dense FLOPs per second of a card in 16 bit, as its maker states them; nothing for cards that
/// are not known, and for other types.
///
/// Args:
///     device: As profiles and records name it: "NVIDIA H100 80GB HBM3".
[[nodiscard]] std::optional<double> peak_flops(const std::string& device, Dtype dtype);

/// What is to be trained, and what a rank costs.
struct EpochGoal {
  std::optional<double> epochs;
  std::optional<double> gpu_hour;  ///< Of a rank for an hour, in any currency.

  [[nodiscard]] bool is_given() const { return epochs || gpu_hour; }
};

/// What training by one policy takes.
struct TrainingPlan {
  std::string policy;
  /// FLOPs per second of one rank; nothing where they are not known, or the policy cuts samples.
  std::optional<double> rank_flops;
  std::optional<double> mfu;  ///< Of the card's peak, a fraction.
  double epochs = 1;
  double hours = 0;  ///< 0: the data set's size is not known, or the policy does not fit.
  double gpu_hours = 0;
  std::optional<double> money;
};

/// [prediction] `lengths`: of the scenario's data, one of which each policy trains an epoch of.
[[nodiscard]] std::vector<TrainingPlan> training_plans(const Scenario& scenario,
                                                       const Profile& profile,
                                                       const std::vector<Prediction>& predictions,
                                                       const EpochGoal& goal);

}  // namespace stepsim
