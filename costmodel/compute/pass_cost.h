#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/compute/fit_errors.h"
#include "costmodel/compute/host_floor.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// The time of a whole forward or backward pass, or of collating, as a function of the batch.
struct PassCost {
  std::vector<std::string> features;  ///< Names of pass_feature().
  std::vector<double> coefficients;   ///< Seconds per unit of each feature; none is negative.
  /// [draw][feature] coefficients of fits to resampled steps, which the recorded steps allow as
  /// well. They state how uncertain the fit is.
  std::vector<std::vector<double>> draws;
  std::pair<double, double> tokens;  ///< The recorded range of tokens in a batch.
  std::pair<double, double> length;  ///< The recorded range of padded lengths.
  int samples = 0;                   ///< How many steps were fitted; each rank's counts once.
  FitErrors errors;

  bool operator==(const PassCost&) const = default;
};

/// What a step's compute takes where several ranks train, over what it takes on one: `factor`
/// (another code path runs), times 1 + `per_doubling` for each doubling of the job's ranks from one
/// on, times (1 + `per_doubling_of_node`) with each doubling of the ranks of the fullest node,
/// which share its processors and memory.
struct SeveralRanks {
  double factor = 1;                ///< More than 0.
  double per_doubling = 0;          ///< More than -1 / 16, so that 65,536 ranks take time.
  double per_doubling_of_node = 0;  ///< More than -1.

  /// Returns the factor on compute with this number of ranks, of which the fullest node has
  /// `fullest`; 1 for one rank.
  [[nodiscard]] double at(int ranks, int fullest) const;

  bool operator==(const SeveralRanks&) const = default;
};

/// The costs of one model's step, fitted to the recorded steps of a training run.
struct RecordedModel {
  TransformerConfig model;
  PassCost data;
  PassCost forward;   ///< Includes zeroing the gradients.
  PassCost backward;  ///< Includes DDP's copies, but not the wait for all-reduces.
  double optimizer_seconds = 0;
  double launch_seconds = 0;   ///< In which the host of a GPU puts in an op; 0: not told.
  double launch_error = 0;     ///< Relative standard deviation of that from run to run.
  double launched_copies = 0;  ///< CostModel::launched_copies()
  /// The host of a GPU waits for the device in each step, or it is not told whether it does.
  bool host_syncs = true;
  /// A byte moved weighs as much as this many floating-point operations when the time of a pass is
  /// divided among its ops.
  double operations_per_byte = 8;
  bool whole_steps = false;  ///< True: only whole steps were timed; passes include all-reduces.
  /// What the costs, which are those of one rank, grow by on several; absent: they hold for the
  /// recorded number of ranks.
  std::optional<SeveralRanks> several_ranks = std::nullopt;
  std::vector<SeveralRanks> several_ranks_draws = {};  ///< [draw] As many as the passes have.

  bool operator==(const RecordedModel&) const = default;
};

/// Returns the costs with this number of ranks, of which the fullest node has `fullest`:
/// several_ranks is in them.
[[nodiscard]] RecordedModel at_ranks(RecordedModel recorded, int ranks, int fullest);

/// A feature of a batch. The features are "1" (0 for an empty batch); "samples";
/// "tokens" (padded ones, or useful ones with varlen); "tokens*length" (samples * length^2, or with
/// varlen the sum of the squared lengths); "tokens*length>X", the part of that above X, which
/// stands for dense scores that do not fit into a cache; "tokens:A-B", the tokens between A and B,
/// in proportion to the tokens from B on, which stands for memory that is new to the process; and
/// "samples:A-B", the samples between A and B ("samples:A-": from A on), by which a measured table
/// of batches goes on.
class PassFeature {
 public:
  /// Raises InputError for any other name.
  explicit PassFeature(std::string_view name);
  [[nodiscard]] double of(const BatchShape& batch, bool varlen) const;

 private:
  enum class Kind { One, Samples, Tokens, Pairs, PairsAbove, SamplesBetween, TokensBetween };

  Kind kind_ = Kind::One;
  double low_ = 0;
  double high_ = 0;
};

/// The seconds of a pass as a function of the batch, for many batches.
class PassSeconds {
 public:
  /// With `coefficients` in place of the cost's own.
  PassSeconds(const PassCost& cost, std::span<const double> coefficients);
  [[nodiscard]] double of(const BatchShape& batch, bool varlen) const;

 private:
  std::vector<std::pair<double, PassFeature>> terms_;  ///< Those whose coefficient is not 0.
};

/// Returns a feature's value for a batch. Raises InputError for an unknown name.
[[nodiscard]] double pass_feature(std::string_view feature, const BatchShape& batch, bool varlen);

/// Returns the seconds of a pass for one batch, with `coefficients` in place of the cost's own.
[[nodiscard]] double pass_seconds(const PassCost& cost,
                                  std::span<const double> coefficients,
                                  const BatchShape& batch,
                                  bool varlen);

/// Returns, by draw, the time of all batches together under that draw's coefficients, relative to
/// their time under the fitted ones.
[[nodiscard]] std::vector<double> draw_ratios(const PassCost& cost,
                                              std::span<const BatchShape> batches,
                                              bool varlen);

/// Tells whether two models are equal apart from their names, and from whether lengths are known.
[[nodiscard]] bool same_model(const TransformerConfig& a, const TransformerConfig& b);

/// Returns an op's weight when the time of its pass is divided among the ops: its floating-point
/// operations plus `operations_per_byte` for each byte that it moves.
[[nodiscard]] double op_weight(const Op& op, const BatchShape& batch, double operations_per_byte);

/// The error groups of a recorded model's costs, see Cost::group.
inline constexpr std::string_view kForwardPass = "forward pass";
inline constexpr std::string_view kBackwardPass = "backward pass";

/// Prices a model whose forward and backward were recorded as a whole: each op gets a share of its
/// pass in proportion to op_weight(). Zeroing and copying gradients cost nothing, since the passes
/// include them. A batch above or below the recorded tokens or lengths is an extrapolation.
class PassCostModel : public CostModel {
 public:
  /// Batches beyond `max_extrapolation` times the largest recorded one are refused. Smaller ones
  /// never are: the constant of a pass is what they come down to.
  /// `floor`: what the passes take at least; nothing: no more than they were recorded with.
  PassCostModel(RecordedModel recorded,
                bool host_is_device,
                double max_extrapolation = 4.0,
                const std::optional<HostFloor>& floor = {});

  [[nodiscard]] Cost op(const Op& op, const BatchShape& batch) const override;
  [[nodiscard]] double launch_seconds() const override { return recorded_.launch_seconds; }
  [[nodiscard]] double launch_error() const override { return recorded_.launch_error; }
  [[nodiscard]] double launched_copies() const override { return recorded_.launched_copies; }
  [[nodiscard]] bool host_is_device() const override { return host_is_device_; }

 private:
  /// Returns the sum of the ops' weights for this batch, in [forward, backward].
  [[nodiscard]] const std::array<double, 2>& total_weights(const BatchShape& batch) const;
  [[nodiscard]] Cost cost_of(const PassCost& pass, const BatchShape& batch) const;

  RecordedModel recorded_;
  bool varlen_;
  bool host_is_device_;
  double max_extrapolation_;
  std::array<double, 2> least_ = {0, 0};  ///< Seconds of a batch's [forward, backward].
  StepOps ops_;
  double elements_;
  /// Caches total_weights(), sorted by shape.
  mutable std::vector<std::pair<BatchShape, std::array<double, 2>>> totals_;
};

}  // namespace stepsim
