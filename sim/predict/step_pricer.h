#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/network/collective_pricer.h"
#include "sim/ddp/ddp_work.h"
#include "sim/ddp/step.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// A systematic error shared by all ops of one class and pass (or by all collectives).
struct ErrorGroup {
  std::string name;
  double relative_sd = 0;
};

/// One batch, priced: seconds of every op, in the order of StepPricer's op lists.
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
  /// [bucket][parameter] seconds; empty with gradient_as_bucket_view.
  std::vector<std::vector<double>> copy_out;
};

/// One op of a plain step.
struct OpWork {
  std::int32_t label = -1;  ///< DdpModel::labels
  Duration work{0};
};

/// The work of a plain step of one rank, op by op.
struct RankOps {
  Duration data{0};
  Duration launch{0};  ///< Of the host, per op.
  std::vector<OpWork> forward;
  std::vector<OpWork> backward;                 ///< As BucketCosts::launch_after counts them.
  std::vector<std::vector<Duration>> copy_out;  ///< [bucket][parameter]
  Duration optimizer{0};
};

/// Factors applied on top of the prices: one a group, one for all collectives, one for the rank.
struct CostFactors {
  std::vector<double> group;  ///< [group]; empty = all 1.
  double collective = 1;
  std::optional<Interference> interference;  ///< In place of the scenario's.
};

/// The ops of a scenario's step with their prices, and their folding into the simulator's input.
class StepPricer {
 public:
  /// `empty_block_seconds`: of one empty block of varlen attention, beside what `costs` says.
  StepPricer(const Scenario& scenario,
             const CostModel& costs,
             const CollectivePricer& pricer,
             double empty_block_seconds = 0);

  /// Tokens that are loaded and embedded: the padded ones, with varlen attention the useful ones.
  [[nodiscard]] std::int64_t input_tokens(const BatchShape& batch) const;

  /// Prices are kept by shape: variable-length plans repeat shapes often.
  const PricedBatch& price(const BatchShape& batch);
  [[nodiscard]] BucketCosts bucket_costs(const std::vector<Bucket>& buckets);

  /// `compute_factor` multiplies all of this rank's compute (slow rank, jitter), `load_factor` the
  /// model's forward and backward only (more work).
  [[nodiscard]] RankStep fold(const PricedBatch& batch,
                              const BucketCosts& buckets,
                              const CostFactors& factors,
                              double compute_factor,
                              double load_factor) const;

  /// What fold() folds, without errors of the costs.
  [[nodiscard]] RankOps rank_ops(const PricedBatch& batch,
                                 const BucketCosts& buckets,
                                 double compute_factor,
                                 double load_factor) const;

  /// The model as DDP's reducer sees it, with the names of its ops.
  [[nodiscard]] DdpModel ddp_model() const;
  /// One micro-batch's kernels at these prices.
  [[nodiscard]] MicroBatchWork micro_batch(const PricedBatch& batch,
                                           const BatchShape& shape,
                                           const CostFactors& factors,
                                           double compute_factor) const;
  /// Costs of DDP's own work; refers to this model and must not outlive it.
  [[nodiscard]] DdpPrices ddp_prices(const CostFactors& factors, double common);

  /// [group] seconds of a batch's forward and backward, on a rank of ordinary speed.
  [[nodiscard]] std::vector<double> seconds_by_group(const PricedBatch& batch) const;
  [[nodiscard]] std::size_t ops_per_micro_batch() const {
    return forward_.size() + backward_.size();
  }
  [[nodiscard]] const std::vector<ErrorGroup>& groups() const { return groups_; }
  /// Of all collectives priced, weighted by their times.
  [[nodiscard]] double collective_error() const {
    return collective_seconds_ > 0 ? collective_error_seconds_ / collective_seconds_ : 0;
  }
  /// Costs outside the measured range, worst factor per op class.
  [[nodiscard]] std::vector<ExtrapolationNote> notes() const;
  /// Where the prices of the collectives come from, each once.
  [[nodiscard]] const std::set<std::string>& collective_sources() const { return sources_; }

 private:
  double priced(const Op& op, const BatchShape& batch, std::size_t* group);
  /// Of all ops of a list; `alike` and `groups`: its forward_alike_ and forward_group_.
  std::vector<double> priced_all(const std::vector<Op>& ops,
                                 const std::vector<std::size_t>& alike,
                                 const BatchShape& batch,
                                 std::vector<std::size_t>& groups);
  double priced_collective(CollectiveKind kind, double bytes, int ranks, int nodes);
  Kernel elements_kernel(OpClass op_class, std::int64_t count, const CostFactors& factors);
  [[nodiscard]] Kernel kernel_of(const Op& op, const BatchShape& shape, double seconds) const;
  /// [op] how long each of a list takes; `alike` and `groups` as for priced_all().
  [[nodiscard]] static std::vector<Duration> durations(const std::vector<Op>& ops,
                                                       const std::vector<std::size_t>& alike,
                                                       const std::vector<double>& seconds,
                                                       const std::vector<std::size_t>& groups,
                                                       const CostFactors& factors,
                                                       double compute_factor,
                                                       double load_factor);
  [[nodiscard]] Span span_of(double seconds) const;

  const CostModel& costs_;
  const CollectivePricer& pricer_;
  double empty_block_seconds_;
  const Scenario& scenario_;
  int ranks_;
  int nodes_;
  bool copies_out_;
  double launch_seconds_;
  TransformerConfig config_;
  std::vector<Op> forward_;
  std::vector<Op> backward_;
  Op optimizer_;
  double optimizer_seconds_ = 0;
  std::vector<std::size_t> forward_alike_;  ///< [op] the first one that is priced as it is.
  std::vector<std::size_t> backward_alike_;
  std::vector<std::size_t> forward_group_;
  std::vector<std::size_t> backward_group_;
  std::size_t collate_group_ = 0;
  std::size_t copy_out_group_ = 0;
  std::size_t optimizer_group_ = 0;
  std::vector<ErrorGroup> groups_;
  double collective_seconds_ = 0;
  double collective_error_seconds_ = 0;
  std::map<std::string, ExtrapolationNote> notes_;
  std::set<std::string> sources_;
  struct ElementsPrice {
    double seconds = 0;
    std::size_t group = 0;
  };
  std::map<std::pair<OpClass, std::int64_t>, ElementsPrice> elements_prices_;
  std::map<std::tuple<CollectiveKind, std::int64_t, int>, double> collective_prices_;
  std::map<BatchShape, PricedBatch> cache_;
};

}  // namespace stepsim
