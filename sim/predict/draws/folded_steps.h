#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/predict/run/run.h"

namespace stepsim {

/// Between which factors all that is drawn lies.
struct FactorRange {
  double least = 1;
  double most = 1;
};

/// The ranges of what a run draws, wide enough for all its draws.
struct DrawnRanges {
  std::vector<FactorRange> groups;  ///< [group] on the work of an error group.
  FactorRange slowness;             ///< On all work of a rank.
  FactorRange load;                 ///< On the work of the model.
  FactorRange host;                 ///< On the launches.
};

/// Plain steps whose ops are added up, span by span, into one number for each error group. A draw
/// of all errors is then a small matrix times a vector, and the ops are looked at only once.
///
/// A span of n ops with launches L and times t acts on a rank's clocks as in
/// sim/parallel/step.h, where
///   device = sum t_i,  critical = max over k of (k L + sum_{i >= k} t_i).
/// Which k can be the largest depends on the draw. Those that no draw within the ranges makes the
/// largest are left out; on a GPU that is busy, the first op alone is left.
class FoldedSteps {
 public:
  /// One number of the batch, times the factor of its group.
  struct Term {
    std::size_t group = 0;
    std::size_t column = 0;
  };
  /// DDP's own work, which is the same for every batch.
  struct FixedTerm {
    std::size_t group = 0;
    double seconds = 0;
  };
  /// A span's work from one of its ops on.
  struct Suffix {
    double launched = 0;  ///< Launches until the first of these ops is there, its own included.
    std::vector<Term> model;
    std::vector<FixedTerm> ddp;
  };
  /// The new shapes of which pass hold up the span's only op.
  enum class HeldUp { No, ByForward, ByBackward };
  struct FoldedSpan {
    std::size_t first_suffix = 0;  ///< That of all ops; an empty span has none.
    std::size_t suffixes = 0;
    double launches = 0;
    HeldUp held_up = HeldUp::No;
  };

  /// Folds the micro-batches of the run from `first` up to `last`, which `step` plays.
  FoldedSteps(const Run& run,
              const PlainStep& step,
              std::size_t first,
              std::size_t last,
              DrawnRanges ranges);

  [[nodiscard]] const PlainStep& step() const { return step_; }
  [[nodiscard]] const std::vector<Suffix>& suffixes() const { return suffixes_; }
  /// Suffixes with work of the model: the first ones.
  [[nodiscard]] std::size_t model_suffixes() const { return model_suffixes_; }
  [[nodiscard]] const std::vector<FoldedSpan>& forward() const { return forward_; }
  /// [bucket] up to that bucket's launch; one more after the last.
  [[nodiscard]] const std::vector<std::vector<FoldedSpan>>& backward() const { return backward_; }
  [[nodiscard]] const std::vector<FoldedSpan>& copy_out() const { return copy_out_; }
  [[nodiscard]] const FoldedSpan& optimizer() const { return optimizer_; }
  /// Whether nothing is copied out of the buckets.
  [[nodiscard]] bool copies_nothing() const;

  /// Which of the different batches a micro-batch of the run is.
  [[nodiscard]] std::uint32_t kind_of(std::size_t batch) const { return kinds_[batch - first_]; }
  [[nodiscard]] std::size_t kinds() const { return different_.size(); }
  /// Whether a suffix can be critical for this kind of batch; the first of a span always is.
  [[nodiscard]] bool critical(std::size_t suffix, std::uint32_t kind) const {
    return critical_[suffix][kind];
  }
  /// The numbers of a batch: [column] seconds.
  [[nodiscard]] const double* row(std::uint32_t kind) const { return &rows_[kind * columns_]; }
  /// Building the batch on the host: a column, and the group of its error.
  static constexpr std::size_t kCollateColumn = 0;

 private:
  void find_kinds(std::size_t last);
  [[nodiscard]] std::vector<FoldedSpan> pass(const std::vector<std::int32_t>& work, HeldUp by);
  [[nodiscard]] FoldedSpan span(const std::vector<std::int32_t>& work, HeldUp held_up);
  /// The ops from which on a span's work can be critical.
  [[nodiscard]] std::vector<std::size_t> critical_starts(
      const PricedBatch& batch, const std::vector<std::int32_t>& work) const;
  [[nodiscard]] Suffix suffix(const std::vector<std::int32_t>& work, std::size_t start);
  void fill_rows();

  const Run& run_;
  const PlainStep& step_;
  DrawnRanges ranges_;
  std::size_t first_;
  std::vector<std::uint32_t> kinds_;           ///< [micro-batch]
  std::vector<const PricedBatch*> different_;  ///< [kind]
  std::vector<Suffix> suffixes_;
  std::vector<std::vector<bool>> critical_;  ///< [suffix][kind]
  std::size_t model_suffixes_ = 0;
  std::vector<FoldedSpan> forward_;
  std::vector<std::vector<FoldedSpan>> backward_;
  std::vector<FoldedSpan> copy_out_;
  FoldedSpan optimizer_;
  std::vector<std::vector<std::int32_t>> added_;  ///< [column] the work that it adds up.
  std::size_t columns_ = 0;
  std::vector<double> rows_;
};

}  // namespace stepsim
