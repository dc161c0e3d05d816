#pragma once

#include <map>
#include <utility>

#include "costmodel/compute/cost_model.h"
#include "costmodel/compute/measured_times.h"

namespace stepsim {

/// Costs of a model whose forward and backward were measured as a whole: each op gets the share of
/// its floating-point operations, and has the error that the times have. Batches of other tokens
/// than those measured are priced in proportion, which adds kProportionError for each doubling or
/// halving.
class TimesCostModel : public CostModel {
 public:
  TimesCostModel(const TransformerConfig& model, const MeasuredTimes& times);

  [[nodiscard]] Cost op(const Op& op, const BatchShape& batch) const override;
  [[nodiscard]] double launch_seconds() const override { return 0; }
  [[nodiscard]] bool host_is_device() const override { return false; }

 private:
  /// Operations of a forward and a backward of this batch.
  [[nodiscard]] std::pair<double, double> total_flops(const BatchShape& batch) const;

  StepOps ops_;
  double elements_;
  MeasuredTimes times_;
  mutable std::map<BatchShape, std::pair<double, double>> totals_;
};

}  // namespace stepsim
