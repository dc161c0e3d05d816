#pragma once

#include <span>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/network/collective_cost.h"
#include "sim/engine/execution_trace.h"
#include "sim/engine/rank_clock.h"

namespace stepsim {

/// Work that one rank's host launches onto its compute stream, in order.
///
/// Any chain of ops with launch costs h_i and durations d_i acts on the clocks (H, C) as
///   H' = H + host,  C' = max(C + device, H + critical)
/// with host = sum h, device = sum d, critical = max over i of (sum_{j<=i} h_j + sum_{j>=i} d_j).
/// Spans compose exactly (max-plus), so a chain between two bucket launches is one span.
struct Span {
  Duration host{0};
  Duration device{0};
  Duration critical{0};
  bool operator==(const Span&) const = default;
};

/// The span of one op.
[[nodiscard]] constexpr Span op_span(Duration launch, Duration duration) {
  return {launch, duration, launch + duration};
}

/// First `a`, then `b`.
[[nodiscard]] constexpr Span then(const Span& a, const Span& b) {
  const Duration launched_before = a.host + b.critical;
  const Duration still_running = a.critical + b.device;
  return {a.host + b.host,
          a.device + b.device,
          launched_before > still_running ? launched_before : still_running};
}

/// One rank's work in one synchronised step.
struct RankStep {
  Duration data{0};  ///< Loading and collation on the host, before the forward.
  Span forward;
  std::vector<Span>
      backward;  ///< [bucket] work up to that bucket's launch; one more after the last.
  std::vector<Span> copy_out;  ///< [bucket] bucket -> gradients, after its all-reduce.
  Span optimizer;
};

/// One step of all ranks.
struct StepInput {
  std::vector<RankStep> ranks;
  std::vector<Duration> all_reduce;  ///< [bucket] from the last rank's arrival to the end.
  bool host_is_device = false;       ///< CPU: the host thread computes, so H and C move together.
};

/// When things happened on one rank. The points follow one another, and the differences between
/// them sum to the step. Where a step has several micro-batches, or waits before the end of its
/// backward, the points add the parts up: all of the data, then all of the forwards, and so on.
struct RankTimeline {
  SimTime start;     ///< Device clock at the start of the step.
  SimTime data_end;  ///< The device is free and the batch is ready.
  SimTime forward_end;
  SimTime backward_end;
  /// When the last backward really ended: backward_end, unless there are several micro-batches.
  SimTime compute_end;
  SimTime end;  ///< After the optimizer.
  /// Device idle, waiting for collectives: after the backward, and in it where a hook holds the
  /// host.
  Duration exposed{0};
  Duration held{0};  ///< Of that: before the last backward ended.
  /// Of that: for slower ranks, which the all-reduce cannot start without. Where ranks wait for
  /// each other within the passes: what the rank that waits least does not wait.
  Duration waiting{0};
  Duration copy_out{0};
  Duration optimizer{0};
  /// [collective] this rank's part is ready to be reduced; SimTime::max(): it takes no part.
  std::vector<SimTime> ready_at;
  std::vector<SimTime> enqueued_at;  ///< [collective] the host's clock at the call.
  bool operator==(const RankTimeline&) const = default;
};

/// What a collective of a step is for.
struct CollectiveUse {
  CollectiveKind kind = CollectiveKind::AllReduce;
  double bytes = 0;  ///< The whole buffer.
  int bucket = -1;   ///< Whose gradients it reduces; -1: not those of a bucket.
  bool operator==(const CollectiveUse&) const = default;
};

/// When things happened in one step, whether the recurrence or the engine played it.
struct StepTimeline {
  std::vector<RankTimeline> ranks;
  std::vector<CollectiveUse> collectives;  ///< In the order in which every rank issues them.
  bool waits_within = false;               ///< Ranks wait for collectives all over their passes.
  std::vector<SimTime> reduce_start;  ///< [collective] all ranks are there, the communicator free.
  std::vector<SimTime> reduce_end;    ///< [collective]
  /// All work on all streams. Spans, waits and RankTimeline::enqueued_at are empty unless spans are
  /// recorded, which only the engine does.
  std::vector<TraceSpan> spans;
  /// Each wait of a compute stream for a collective. They sum to RankTimeline::exposed.
  std::vector<TraceSpan> waits;
  std::vector<RankClock> clocks;  ///< [rank] at the beginning of the next step.
  bool operator==(const StepTimeline&) const = default;
};

/// Throws std::invalid_argument when the shapes disagree (backward needs buckets + 1 spans,
/// copy_out one per bucket), there is no rank, or a duration is negative.
void check(const StepInput& input);

/// Checks the input as above, and that there is one clock per rank.
void check(const StepInput& input, std::span<const RankClock> clocks);

}  // namespace stepsim
