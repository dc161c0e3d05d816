#pragma once

#include <string_view>

#include "costmodel/base/units.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// A price with what is known about its error.
struct Cost {
  double seconds = 0;
  /// Mean absolute relative error on held-out measurements; 0 when the cost is exact by definition.
  double relative_error = 0;
  /// The part of that error which all uses of the cost share (a bias), and which therefore does not
  /// average out over the steps: what intervals of a mean are made of.
  double shared_error = 0;
  /// How far outside the measured range: 1 inside, 2 = twice the largest measured size.
  double extrapolation = 1;
  bool unseen_shape =
      false;  ///< No measurement of these sizes (n, k, …): the class's general form.
  /// Whose error it shares; empty: that of its class and pass.
  std::string_view group;
};

/// What the ops of a step cost. Fitted op by op (ProfileCostModel); or shares of passes that were
/// fitted as a whole to recorded steps (PassCostModel) or stated (TimesCostModel). Collectives:
/// CollectivePricer.
class CostModel {
 public:
  virtual ~CostModel() = default;

  /// Raises InputError: the profile has no cost for this op, or it is refused outside its range.
  [[nodiscard]] virtual Cost op(const Op& op, const BatchShape& batch) const = 0;

  /// Host time to launch one op; 0 when the host computes itself (CPU).
  [[nodiscard]] virtual double launch_seconds() const = 0;

  /// True when the host thread computes itself (CPU, gloo): it never runs ahead of the device.
  [[nodiscard]] virtual bool host_is_device() const = 0;
};

}  // namespace stepsim
