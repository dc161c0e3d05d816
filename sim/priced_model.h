#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "costmodel/cost_model.h"
#include "sim/ddp/step.h"
#include "sim/scenario.h"

namespace stepsim {

/// A systematic error shared by all ops of one class and pass (or by all collectives).
struct ErrorGroup {
  std::string name;
  double relative_sd = 0;
};

/// One batch, priced: seconds of every op, in the order of PricedModel's op lists.
struct PricedBatch {
  double collate = 0;
  std::vector<double> forward;   ///< [op], zero_gradient first when gradients are zeroed.
  std::vector<double> backward;  ///< [op], gradient copies where DDP does them.
};

/// How much a result leans on costs outside what was measured.
struct ExtrapolationNote {
  std::string op;
  double factor = 1;
  bool unseen_shape = false;
};

/// Buckets ready to be folded: where each launches, what its copies and all-reduce cost.
struct BucketCosts {
  std::vector<std::size_t> launch_after;  ///< [bucket] index into the backward ops.
  std::vector<double> all_reduce;         ///< [bucket] seconds.
  std::vector<double> copy_out;           ///< [bucket] seconds; empty with gradient_as_bucket_view.
};

/// Factors applied on top of the prices: one a group, one for all collectives, one for the rank.
struct CostFactors {
  std::vector<double> group;  ///< [group]; empty = all 1.
  double collective = 1;
};

/// The ops of a scenario's step with their prices, and their folding into the simulator's input.
class PricedModel {
 public:
  PricedModel(const Scenario& scenario, const CostModel& costs);

  /// Prices are kept by shape: variable-length plans repeat shapes often.
  const PricedBatch& price(const BatchShape& batch);
  [[nodiscard]] BucketCosts bucket_costs(const std::vector<Bucket>& buckets);

  /// `compute_factor` multiplies this rank's compute (slow rank, jitter).
  [[nodiscard]] RankStep fold(const PricedBatch& batch,
                              const BucketCosts& buckets,
                              const CostFactors& factors,
                              double compute_factor) const;

  [[nodiscard]] const std::vector<ErrorGroup>& groups() const { return groups_; }
  [[nodiscard]] double collective_error() const { return collective_error_; }
  /// Costs outside the measured range, worst factor per op class.
  [[nodiscard]] std::vector<ExtrapolationNote> notes() const;

 private:
  double priced(const Op& op, const BatchShape& batch, std::size_t* group);
  [[nodiscard]] Span span_of(double seconds) const;

  const CostModel& costs_;
  int ranks_;
  bool copies_out_;
  double launch_seconds_;
  TransformerConfig config_;
  std::vector<Op> forward_;
  std::vector<Op> backward_;
  Op optimizer_;
  double optimizer_seconds_ = 0;
  std::vector<std::size_t> forward_group_;
  std::vector<std::size_t> backward_group_;
  std::size_t collate_group_ = 0;
  std::size_t copy_out_group_ = 0;
  std::size_t optimizer_group_ = 0;
  std::vector<ErrorGroup> groups_;
  double collective_error_ = 0;
  std::map<std::string, ExtrapolationNote> notes_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, double>, PricedBatch> cache_;
};

}  // namespace stepsim
