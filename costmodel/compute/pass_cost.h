#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/compute/fit_errors.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// What a whole forward or backward (or collating) takes, as a function of the batch.
struct PassCost {
  std::vector<std::string> features;  ///< See pass_feature().
  std::vector<double> coefficients;   ///< Seconds per unit of each feature; none is negative.
  /// Coefficients of fits to resampled steps: what the recorded steps allow as well.
  /// [draw][feature]
  std::vector<std::vector<double>> draws;
  std::pair<double, double> tokens;  ///< Recorded range: tokens of a batch,
  std::pair<double, double> length;  ///< and the length it was padded to.
  int samples = 0;                   ///< Steps and ranks that were fitted.
  FitErrors errors;

  bool operator==(const PassCost&) const = default;
};

/// The costs of one model's step, fitted to steps of a training run.
struct RecordedModel {
  TransformerConfig model;
  PassCost data;
  PassCost forward;   ///< With zeroing the gradients.
  PassCost backward;  ///< With DDP's copies, without waiting for all-reduces.
  double optimizer_seconds = 0;
  /// What a byte weighs against a floating-point operation when a pass is shared out to its ops.
  double operations_per_byte = 8;
  bool whole_steps = false;  ///< The passes are shares of whole steps and hold their all-reduces.

  bool operator==(const RecordedModel&) const = default;
};

/// A feature's value for a batch: "1", "samples", "tokens" (padded; the useful ones with varlen),
/// "tokens*length" (samples * length^2; the sum of squares with varlen), and "tokens*length>X",
/// what of that is beyond X: dense scores that a cache does not hold. Raises InputError.
[[nodiscard]] double pass_feature(std::string_view feature, const BatchShape& batch, bool varlen);

/// Seconds of a pass for one batch, with `coefficients` in place of the cost's own.
[[nodiscard]] double pass_seconds(const PassCost& cost,
                                  std::span<const double> coefficients,
                                  const BatchShape& batch,
                                  bool varlen);

/// [draw] What the batches together take by each draw, over what they take by the fit.
[[nodiscard]] std::vector<double> draw_ratios(const PassCost& cost,
                                              std::span<const BatchShape> batches,
                                              bool varlen);

/// The same model, by whatever name.
[[nodiscard]] bool same_model(const TransformerConfig& a, const TransformerConfig& b);

/// What an op weighs when its pass is shared out.
[[nodiscard]] double op_weight(const Op& op, const BatchShape& batch, double operations_per_byte);

/// Names of the error groups of a recorded model's costs.
inline constexpr std::string_view kForwardPass = "forward pass";
inline constexpr std::string_view kBackwardPass = "backward pass";

/// Costs of a model whose forward and backward were recorded as a whole: each op gets the share of
/// its weight. Zeroing and copying gradients are in the passes and cost nothing beside them. A
/// batch beyond the recorded tokens or lengths is an extrapolation, and so is one below.
class PassCostModel : public CostModel {
 public:
  /// `max_extrapolation`: refuse beyond this factor of the largest recorded batch.
  PassCostModel(RecordedModel recorded, bool host_is_device, double max_extrapolation = 4.0);

  [[nodiscard]] Cost op(const Op& op, const BatchShape& batch) const override;
  [[nodiscard]] double launch_seconds() const override { return 0; }
  [[nodiscard]] bool host_is_device() const override { return host_is_device_; }

 private:
  /// Weights of a forward and of a backward of this batch.
  [[nodiscard]] const std::array<double, 2>& total_weights(const BatchShape& batch) const;
  [[nodiscard]] Cost cost_of(const PassCost& pass, const BatchShape& batch) const;

  RecordedModel recorded_;
  bool varlen_;
  bool host_is_device_;
  double max_extrapolation_;
  StepOps ops_;
  double elements_;
  mutable std::vector<std::pair<BatchShape, std::array<double, 2>>> totals_;  ///< Sorted.
};

}  // namespace stepsim
