#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/parallel/step.h"
#include "sim/predict/run/run.h"

namespace stepsim {

/// Plays the steps of a plain run without noise, as closed_form_step() plays them, to the
/// nanosecond. The work of a step acts on a rank's clocks by maxima and sums, so that all of it up
/// to the launch of a bucket is one span. There is one row of such spans for each different piece
/// of work, whatever the number of ranks and steps.
class PlainPlayer {
 public:
  /// Whether it plays this run: it is plain, what a rank computes depends on its batch and the rank
  /// alone, and batches repeat so often that rows are worth it.
  [[nodiscard]] static bool plays(const Run& run);

  /// The run must outlive the player, which plays() it.
  explicit PlainPlayer(const Run& run);

  /// The next step, until it is called again. RankTimeline::ready_at is not filled in. Raises
  /// InputError: the simulated clock passes kTimeLimit.
  [[nodiscard]] const StepTimeline& next();

 private:
  /// The parts of a rank's work in a step, each from the beginning of the step to its own end.
  struct Row {
    bool known = false;
    Span data;
    Span forward;
    Span backward;
  };
  /// What follows the all-reduces on a rank, which does not depend on its batch.
  struct Tail {
    std::vector<Span> copies;         ///< [bucket]
    std::vector<Span> copies_before;  ///< [bucket] those of all buckets before it.
    Span optimizer;
  };
  /// What is the same in all steps that have one schedule.
  struct Steps {
    const PlainStep* step = nullptr;
    std::vector<Duration> all_reduce;  ///< [bucket]
    std::vector<Row> rows;             ///< [class of rank * prices + price]
    /// [row * buckets + bucket] From the clocks of the device and of the host at the beginning of
    /// the step to the bucket's launch, in nanoseconds.
    std::vector<std::int64_t> device;
    std::vector<std::int64_t> host;
    std::vector<Tail> tails;  ///< [class of rank]
  };

  [[nodiscard]] Steps steps_of(const PlainStep& step) const;
  void fill(Steps& steps, std::size_t row, std::size_t rank_class, std::size_t batch) const;
  void reduce(const Steps& steps);
  void finish(const Tail& tail, std::size_t rank);

  const Run& run_;
  std::size_t prices_;
  bool host_is_device_;
  std::vector<std::uint32_t> class_of_rank_;
  std::size_t classes_;
  Steps first_;
  Steps others_;
  std::vector<std::int64_t> launched_;  ///< [bucket] The latest launch of the ranks.
  StepTimeline timeline_;
  int step_ = 0;
};

}  // namespace stepsim
