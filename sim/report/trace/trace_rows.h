#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/parallel/step.h"

namespace stepsim {

/// One slice of a rank's timeline.
struct TraceRow {
  enum class Kind : std::uint8_t { Work, Idle, Collective };
  static constexpr std::int32_t kNoLabel = -1;    ///< What DDP adds: copies, the optimizer.
  static constexpr std::int32_t kWholePart = -2;  ///< All work of a part.

  Kind kind = Kind::Work;
  Phase phase = Phase::Other;
  /// Work: the stream; Idle: the compute stream, which waits for a batch or for collectives.
  /// Collective: 0, or more for one that is held beside others. Rows of
  /// one kind and lane never overlap; Work and Idle share their lanes.
  int lane = 0;
  /// Work: label, kNoLabel or kWholePart. Collective: its number in the step.
  std::int32_t index = kNoLabel;
  SimTime enqueued_at;  ///< The host's clock at the call.
  SimTime begin;        ///< Collective: a worker holds the rank's part, the wait begins.
  SimTime end;
};

/// The rows of one rank in one step, in order of their begin.
class TraceRows {
 public:
  /// `ranks`: of the run. `by_part`: one row for each stretch of a part in place of each op.
  TraceRows(int ranks, bool by_part) : by_part_(by_part), lanes_(static_cast<std::size_t>(ranks)) {}

  /// Takes the next step, with its spans and names of collectives.
  void take(const StepTimeline& timeline);
  /// Describes the step that was taken last.
  [[nodiscard]] const std::vector<TraceRow>& of_rank(int rank) const {
    return rows_[static_cast<std::size_t>(rank)];
  }

 private:
  void add_collectives(std::size_t rank, const StepTimeline& timeline);
  void merge_parts(const RankTimeline& times, std::vector<TraceRow>& rows) const;

  bool by_part_;
  std::vector<std::vector<SimTime>> lanes_;  ///< [rank][lane] when it is free again.
  std::vector<std::vector<TraceRow>> rows_;  ///< [rank]
};

/// What a row of work is called: the op's name, else what DDP does there.
[[nodiscard]] std::string work_name(const TraceRow& row, const std::vector<std::string>& labels);

}  // namespace stepsim
