#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "costmodel/model/transformer.h"
#include "sim/batching/epoch_plan.h"
#include "sim/batching/lengths.h"
#include "sim/batching/loss_scale.h"
#include "sim/batching/played_batches.h"
#include "sim/batching/policy_parameters.h"
#include "sim/batching/sort_window.h"
#include "sim/batching/varlen.h"

namespace stepsim {

/// A kind of batching policy: one row of policy_table(). The row holds all that the rest of the
/// code knows about a kind; nobody else asks for a kind or for one of its parameters by name.
struct PolicyKind {
  /// A policy forms the batches of one epoch by one of three functions: the first keeps samples
  /// whole, the second may cut them, the third keeps them whole and chooses the lengths that
  /// batches are padded to. Or it plays the batches of the file that `file` names.
  using KeepSamples = EpochBatches (*)(const PolicyParameters&, const PolicyInput&);
  using CutSamples = EpochPlan (*)(const PolicyParameters&, const PolicyInput&);
  struct ChoosePadding {
    EpochPlan (*form)(const PolicyParameters&, const PolicyInput&);
  };
  struct PlaysFile {};

  std::string name;        ///< The scenario's `kind`: "fixed", "token_budget", …
  std::string summary;     ///< One line for `stepsim policies`.
  std::string source;      ///< What gives such batches: a library's call, `stepsim plan`, a paper.
  bool is_common = false;  ///< Among those that a newcomer should try first.
  std::vector<PolicyParameter> parameters;
  std::variant<KeepSamples, CutSamples, ChoosePadding, PlaysFile> epoch;
  /// Raises InputError where parameters contradict each other.
  void (*check)(const PolicyParameters&) = nullptr;
  /// The most tokens that the parameters allow in a batch, whichever way the kind counts them.
  std::function<std::optional<double>(const PolicyParameters&)> token_budget = nullptr;
  /// The length that a batch with this longest sample is padded to, where it is another one.
  std::int64_t (*padded_length)(const PolicyParameters&, std::int64_t longest) = nullptr;
  /// The window of a data set of this many samples, where the kind sorts by windows.
  SortWindow (*sort_window)(const PolicyParameters&, std::int64_t samples) = nullptr;
  /// Takes the parameters that the scenario gives, without the defaults of the others.
  StepCostUse (*step_cost_use)(const PolicyParameters& given) = nullptr;
};

/// What a scenario says about one policy.
struct PolicySpec {
  std::string name;             ///< The user's name for it, unique in the scenario.
  std::string kind;             ///< The name of a PolicyKind.
  PolicyParameters parameters;  ///< The parameters that the scenario gives.
  LossWeighting weighting = LossWeighting::None;  ///< See loss_scale().
  std::int64_t pad_to_multiple_of = 1;            ///< The length of each batch is rounded up to it.
  /// In its place: ascending lengths, to the next of which that of each batch is rounded up; or
  /// empty.
  std::vector<std::int64_t> pad_to_lengths = {};
  std::optional<LengthSource> lengths;  ///< They replace the scenario's: a reference case.
  AttentionKind attention = AttentionKind::Dense;  ///< The policy's own, else the model's.
  VarlenCall varlen;                               ///< The policy's own, else the model's.
  /// The samples of a batch stand after one another in rows of this many tokens, and attention runs
  /// over a row as one sequence. 0: each sample is a row.
  std::int64_t row_length = 0;
  std::shared_ptr<const PlayedBatches> played;  ///< Of a kind that plays a file; else null.
  /// Whether the policy is a reference case, which cannot be recommended; absent: where its data
  /// are not the scenario's.
  std::optional<bool> reference;
};

/// A checked policy of a scenario, which only plans: it forms the batches of an epoch and knows
/// what they are padded to.
class BatchingPolicy {
 public:
  /// `kind` must outlive the policy, as the rows of policy_table() do.
  /// Raises InputError: a parameter is missing, out of range or not taken by the kind; parameters
  /// contradict each other; pad_to_multiple_of is below 1; pad_to_lengths
  /// do not ascend from 1 or more; both are given, or one of them to a kind that chooses itself.
  /// Raises std::logic_error: the kind plays a file, and `spec` does not hold its batches.
  BatchingPolicy(const PolicyKind& kind, PolicySpec spec);

  [[nodiscard]] const std::string& name() const { return spec_.name; }
  [[nodiscard]] const PolicyKind& kind() const { return *kind_; }
  /// The parameters with the defaults of those that the scenario leaves out.
  [[nodiscard]] const PolicyParameters& parameters() const { return spec_.parameters; }
  [[nodiscard]] LossWeighting weighting() const { return spec_.weighting; }
  [[nodiscard]] const std::optional<LengthSource>& lengths() const { return spec_.lengths; }
  [[nodiscard]] AttentionKind attention() const { return spec_.attention; }
  [[nodiscard]] bool is_varlen() const { return spec_.attention == AttentionKind::Varlen; }
  [[nodiscard]] const VarlenCall& varlen() const { return spec_.varlen; }
  [[nodiscard]] std::int64_t row_length() const { return spec_.row_length; }
  [[nodiscard]] std::int64_t pad_to_multiple_of() const { return spec_.pad_to_multiple_of; }
  /// Empty: batches are padded to a multiple.
  [[nodiscard]] const std::vector<std::int64_t>& pad_to_lengths() const {
    return spec_.pad_to_lengths;
  }
  [[nodiscard]] StepCostUse step_cost_use() const { return step_cost_use_; }
  /// The batches of its file, where it plays one; else null.
  [[nodiscard]] const PlayedBatches* played() const { return spec_.played.get(); }
  /// Whether its data are its own and not the scenario's.
  [[nodiscard]] bool has_own_data() const { return spec_.lengths || spec_.played; }
  /// Whether it is a reference case: it may do other work than the others, and cannot be chosen.
  [[nodiscard]] bool is_reference() const { return spec_.reference.value_or(has_own_data()); }
  /// Whether it may cut samples. The lengths of the samples then do not limit those of its batches.
  [[nodiscard]] bool cuts() const;
  /// Whether it chooses by the data what its batches are padded to: EpochPlan::pad_to_lengths.
  [[nodiscard]] bool chooses_padding() const;
  /// The most tokens that its parameters allow in a batch; nothing where they set no such limit.
  [[nodiscard]] std::optional<double> token_budget() const;
  /// The samples of a batch, where a parameter says so.
  [[nodiscard]] std::optional<double> batch_size() const;
  /// The window of a data set of this many samples, where the kind sorts by windows.
  [[nodiscard]] std::optional<SortWindow> sort_window(std::int64_t samples) const;
  /// The length that a batch with this longest sample is padded to.
  /// Raises InputError: `longest` is in no bucket, and batches are padded to boundaries of buckets;
  /// or it is longer than all pad_to_lengths().
  [[nodiscard]] std::int64_t padded_length(std::int64_t longest) const;
  /// The length that a batch of this epoch is padded to; a policy may have chosen the lengths for
  /// the epoch by its data.
  [[nodiscard]] std::int64_t padded_length(std::int64_t longest, const EpochPlan& epoch) const;
  /// Returns a policy that forms the same batches and pads them in another way. Raises InputError
  /// as the constructor.
  [[nodiscard]] BatchingPolicy with_padding(std::int64_t pad_to_multiple_of,
                                            std::vector<std::int64_t> pad_to_lengths) const;

  /// Raises InputError: the kind cannot plan this, or it would cut samples with second lengths.
  /// Raises std::logic_error: it plays a file, which plan_steps() does.
  [[nodiscard]] EpochPlan epoch(const PolicyInput& input) const;

 private:
  const PolicyKind* kind_;
  PolicySpec spec_;
  StepCostUse step_cost_use_ = StepCostUse::Never;
};

/// `length` rounded up to a multiple, as a collator with pad_to_multiple_of pads.
[[nodiscard]] std::int64_t padded_to_multiple(std::int64_t length, std::int64_t multiple);

/// The lowest of the ascending `rungs` that is not below `length`; 0 for a length of 0.
/// Raises InputError: all are.
[[nodiscard]] std::int64_t padded_to_rung(std::int64_t length, std::span<const std::int64_t> rungs);

}  // namespace stepsim
