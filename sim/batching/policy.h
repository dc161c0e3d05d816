#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"
#include "sim/batching/algorithms/piece.h"
#include "sim/batching/lengths.h"
#include "sim/batching/policy_parameters.h"
#include "sim/batching/sampler.h"
#include "sim/batching/varlen.h"

namespace stepsim {

/// A policy as the scenario names it.
struct PolicySpec {
  std::string name;                     ///< The user's name for it, unique in the scenario.
  std::string kind;                     ///< A row of policy_table(): "fixed", "token_budget", …
  PolicyParameters parameters;          ///< Those the scenario gives.
  std::string weighting = "none";       ///< "none", "sample", "token": loss_scale of the plan.
  std::int64_t pad_to_multiple_of = 1;  ///< The padded length of each batch.
  std::optional<LengthSource> lengths;  ///< In place of the scenario's (a uniform reference case).
  std::optional<AttentionKind> attention;  ///< In place of the model's.
  std::optional<VarlenCall> varlen;        ///< In place of the model's.
  /// A batch's samples stand after one another, in rows of this many tokens that are attended as
  /// one; 0: each sample is a row.
  std::int64_t row_length = 0;
};

/// Nanoseconds that one rank computes on a batch of this shape.
using StepCost = std::function<std::int64_t(const BatchShape&)>;

/// What a policy sees: the whole data set, and how its samples are ordered and split.
struct PolicyInput {
  std::span<const std::int64_t> lengths;  ///< [sample]
  std::span<const std::int64_t> targets;  ///< [sample] second lengths; empty: there are none.
  SamplerSpec sampler;
  int ranks = 1;
  int epoch = 0;
  StepCost step_cost;  ///< Empty where nobody knows it; only policies that plan by time need it.
};

/// [batch] sample ids.
using Batches = std::vector<std::vector<std::int64_t>>;

/// [rank][batch] sample ids of one epoch.
using EpochBatches = std::vector<Batches>;

/// What a policy makes of one epoch.
struct EpochPlan {
  EpochBatches batches;  ///< [rank][batch] sample ids, or where there are pieces their indices.
  std::vector<Piece> pieces;  ///< Of samples that the policy cut. Empty: all samples are whole.

  /// The samples and parts of samples of a batch. lengths: [sample]
  [[nodiscard]] std::vector<Piece> pieces_of(std::span<const std::int64_t> batch,
                                             std::span<const std::int64_t> lengths) const;

  bool operator==(const EpochPlan&) const = default;
};

/// What there is: kind, one line of description, the parameters it takes, where it comes from.
struct PolicyInfo {
  std::string kind;
  std::string summary;
  std::vector<PolicyParameter> parameters;
  std::string source;
};
[[nodiscard]] std::span<const PolicyInfo> policy_table();

/// The row of one kind. Raises InputError: unknown kind (nearest named).
[[nodiscard]] const PolicyInfo& policy_info(std::string_view kind);

/// The names of all parameters that any kind takes, in the order of the table.
[[nodiscard]] std::span<const std::string> policy_parameter_names();

/// Forms the batches of one epoch: an ordering, a former of batches, a distributor over the ranks
/// and a rule for the tail. A kind is a function, in policies/.
class BatchingPolicy {
 public:
  using Whole = EpochBatches (*)(const PolicyParameters&, const PolicyInput&);
  using Cutting = EpochPlan (*)(const PolicyParameters&, const PolicyInput&);
  using Epoch = std::variant<Whole, Cutting>;

  BatchingPolicy(PolicyParameters parameters, Epoch form, std::int64_t pad_to_multiple_of)
      : parameters_(std::move(parameters)), form_(form), pad_to_multiple_of_(pad_to_multiple_of) {}
  /// Raises InputError: what the kind cannot plan; samples with second lengths that it would cut.
  [[nodiscard]] EpochPlan epoch(const PolicyInput& input) const;
  /// Whether it can cut samples: their lengths are then no limit on those of its batches.
  [[nodiscard]] bool cuts() const { return std::holds_alternative<Cutting>(form_); }
  /// The most tokens that its parameters allow a batch, whichever way it counts them; nothing where
  /// they do not.
  [[nodiscard]] std::optional<double> token_budget() const;
  /// What a batch is padded to. Raises InputError: `longest` is in no bucket whose boundary counts.
  [[nodiscard]] std::int64_t padded_length(std::int64_t longest) const;

 private:
  PolicyParameters parameters_;
  Epoch form_;
  std::int64_t pad_to_multiple_of_;
};

/// Raises InputError: unknown kind (nearest named), a parameter that is missing, out of range or
/// not taken by the kind, parameters that contradict each other, an unknown weighting, a multiple
/// below 1.
[[nodiscard]] BatchingPolicy make_policy(const PolicySpec& spec);

/// [step][rank] samples, or parts of them, of the first `steps` steps.
///
/// Step t executes batch t modulo the rank's number of batches, as the token-skew lab does: a rank
/// that has used its epoch up starts the same batches again, without a new shuffle and without
/// waiting for the others. `revise`, where given, changes the epoch before.
/// Raises:
///     InputError: steps < 1, more ranks than samples, or a rank without a batch (drop_last).
[[nodiscard]] std::vector<std::vector<std::vector<Piece>>> plan_steps(
    const BatchingPolicy& policy,
    PolicyInput input,
    int steps,
    const std::function<void(EpochPlan&)>& revise = {});

/// 64-bit FNV-1a of a plan as 16 hex digits: for every rank, for every batch: each id, then
/// FFFFFFFF after each batch and FFFFFFFE after each rank; 32-bit words, low byte first. Where ids
/// are indices of pieces, sample, offset and length take the place of each.
[[nodiscard]] std::string plan_hash(const EpochBatches& batches,
                                    std::span<const Piece> pieces = {});

/// "none", "sample", "token".
[[nodiscard]] std::span<const std::string> weightings();

/// Factor on a rank's mean loss so that DDP's average over ranks becomes the mean over all units:
/// 1 for "none", else ranks * own / all.
///
/// Args:
///     own: This rank's samples ("sample") or useful tokens ("token") in the step.
///     all: Their sum over the ranks, > 0.
/// Raises:
///     InputError: unknown weighting, or all <= 0 where it is used.
/// Source: DDP divides the sum of gradients by the number of ranks, whatever each rank holds.
[[nodiscard]] double loss_scale(std::string_view weighting, double own, double all, int ranks);

/// [rank] loss_scale of one step from its batches' shapes.
[[nodiscard]] std::vector<double> loss_scales(std::string_view weighting,
                                              std::span<const BatchShape> ranks);

}  // namespace stepsim
