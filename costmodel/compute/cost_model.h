#pragma once

#include <string_view>

#include "costmodel/base/units.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// The longest time that a profile may state, or that one op may take by it.
inline constexpr double kMaxCostSeconds = 3600;

/// A price with what is known about its error.
struct Cost {
  double seconds = 0;
  /// The mean absolute relative error on held-out measurements; 0 when the cost is exact by
  /// definition.
  double relative_error = 0;
  /// The part of that error which all uses of the cost share (a bias). It does not average out over
  /// the steps, so intervals of a mean are made of it.
  double shared_error = 0;
  /// How far outside the measured range the batch is: 1 = inside, 2 = twice the largest measured
  /// size, or half the smallest where `smaller` says so.
  double extrapolation = 1;
  bool smaller = false;
  /// These sizes (n, k, …) were not measured; the class's entry for any size priced them.
  bool unseen_shape = false;
  /// Costs with the same group share their error; empty = those of the same class and pass do.
  std::string_view group;
};

/// What the ops of a step cost: fitted op by op (ProfileCostModel), or as shares of passes that
/// were fitted as a whole to recorded steps (PassCostModel) or stated (TimesCostModel).
/// CollectivePricer prices collectives.
class CostModel {
 public:
  virtual ~CostModel() = default;

  /// Prices one op. Raises InputError when there is no cost for it, or none so far outside its
  /// range.
  [[nodiscard]] virtual Cost op(const Op& op, const BatchShape& batch) const = 0;

  /// The host's time to launch one op; 0 when the host computes itself (CPU).
  [[nodiscard]] virtual double launch_seconds() const = 0;
  /// The relative standard deviation of that from run to run.
  [[nodiscard]] virtual double launch_error() const { return 0; }
  /// The share of DDP's copies of gradients in the ops that launch_seconds() is a mean over.
  [[nodiscard]] virtual double launched_copies() const { return 0; }

  /// Whether the host thread computes itself (CPU, gloo), so that it never runs ahead of the
  /// device.
  [[nodiscard]] virtual bool host_is_device() const = 0;
};

}  // namespace stepsim
