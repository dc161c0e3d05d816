#pragma once

#include <map>
#include <utility>

#include "costmodel/compute/cost_model.h"

namespace stepsim {

/// Times of one micro-batch that somebody measured, in seconds.
struct StepTimes {
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
  double tokens = 0;            ///< Rows that they were measured with; 0: the same for any batch.
  double copy_bytes_per_s = 0;  ///< DDP's own copies; 0: free.
};

/// Costs of a model whose forward and backward were measured as a whole: each op gets the share of
/// its floating-point operations. Nothing is known of the shares' error, so none is stated.
class TimesCostModel : public CostModel {
 public:
  TimesCostModel(const TransformerConfig& model, const StepTimes& times);

  [[nodiscard]] Cost op(const Op& op, const BatchShape& batch) const override;
  [[nodiscard]] double launch_seconds() const override { return 0; }
  [[nodiscard]] bool host_is_device() const override { return false; }

 private:
  /// Operations of a forward and a backward of this batch.
  [[nodiscard]] std::pair<double, double> total_flops(const BatchShape& batch) const;

  StepOps ops_;
  double elements_;
  StepTimes times_;
  mutable std::map<BatchShape, std::pair<double, double>> totals_;
};

}  // namespace stepsim
