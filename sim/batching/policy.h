#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/batching/lengths.h"
#include "sim/batching/sampler.h"

namespace stepsim {

/// A policy as the scenario names it.
struct PolicySpec {
  std::string name;  ///< The user's name for it, unique in the scenario.
  std::string kind;  ///< "fixed", "bucketed", "token_budget"
  std::int64_t batch_size = 0;             ///< Samples per rank and step (fixed, bucketed).
  std::int64_t max_tokens = 0;             ///< Padded tokens per rank and step (token_budget).
  std::string weighting = "none";          ///< "none", "sample", "token": loss_scale of the plan.
  std::optional<LengthSource> lengths;     ///< In place of the scenario's (a uniform reference case).
};

/// What a policy sees: the whole data set, and how its samples are ordered and split.
struct PolicyInput {
  std::span<const std::int64_t> lengths;  ///< [sample]
  SamplerSpec sampler;
  int ranks = 1;
  int epoch = 0;
};

/// [rank][batch] sample ids of one epoch.
using EpochBatches = std::vector<std::vector<std::vector<std::int64_t>>>;

/// Forms the batches of one epoch. One implementation a policy.
class BatchingPolicy {
 public:
  virtual ~BatchingPolicy() = default;
  [[nodiscard]] virtual EpochBatches epoch(const PolicyInput& input) const = 0;
};

/// What there is: kind, one line of description, the parameters it takes, where it comes from.
struct PolicyInfo {
  std::string kind;
  std::string summary;
  std::vector<std::string> parameters;
  std::string source;
};
[[nodiscard]] std::span<const PolicyInfo> policy_table();

/// Raises InputError: unknown kind (nearest named), a missing or non-positive parameter.
[[nodiscard]] std::unique_ptr<BatchingPolicy> make_policy(const PolicySpec& spec);

/// One step of the plan: [rank] sample ids. Step t of the run executes batch t of the epoch,
/// the ranks' lists taken modulo their length when a rank has fewer (as the token-skew lab does).
/// Raises InputError when a rank has no batch at all (more ranks than samples).
[[nodiscard]] std::vector<std::vector<std::vector<std::int64_t>>> plan_steps(
    const BatchingPolicy& policy, PolicyInput input, int steps);

/// 64-bit FNV-1a of a plan as 16 hex digits: for every rank, for every batch: each id, then
/// FFFFFFFF after each batch and FFFFFFFE after each rank; 32-bit words, low byte first.
[[nodiscard]] std::string plan_hash(const EpochBatches& batches);

}  // namespace stepsim
