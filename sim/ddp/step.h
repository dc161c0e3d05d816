#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
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

/// When things happened on one rank. Consecutive points; the differences sum to the step. With
/// several micro-batches, or waits before the backward's end, the points add up the parts: all of
/// the data, then all of the forwards, and so on.
struct RankTimeline {
  SimTime start;     ///< Device clock at the start of the step.
  SimTime data_end;  ///< Device free and batch ready.
  SimTime forward_end;
  SimTime backward_end;
  SimTime
      compute_end;  ///< When the last backward really ended; backward_end without micro-batches.
  SimTime end;      ///< After the optimizer.
  Duration exposed{0};  ///< Device idle, waiting for all-reduces after backward.
  Duration copy_out{0};
  Duration optimizer{0};
  std::vector<SimTime> ready_at;     ///< [bucket] this rank's part is ready to be reduced.
  std::vector<SimTime> enqueued_at;  ///< [bucket] the host's clock at the call; with spans only.
  bool operator==(const RankTimeline&) const = default;
};

struct StepTimeline {
  std::vector<RankTimeline> ranks;
  std::vector<SimTime> reduce_start;  ///< [bucket] last rank arrived and the communicator is free.
  std::vector<SimTime> reduce_end;    ///< [bucket]
  /// What each collective is ("all_reduce", "all_gather", …) when there are others than one
  /// all-reduce a bucket; else empty.
  std::vector<std::string> reduce_names;
  std::vector<double> reduce_bytes;  ///< The same: whole buffers.
  std::vector<int> reduce_buckets;   ///< The same: whose gradients; -1: not those of a bucket.
  std::vector<TraceSpan> spans;      ///< All work on all streams, when recorded.
  std::vector<TraceSpan> waits;      ///< Of the compute streams for collectives, when recorded:
                                     ///< all of RankTimeline::exposed.
  std::vector<RankClock> clocks;     ///< [rank] for the next step.
  bool operator==(const StepTimeline&) const = default;
};

/// Throws std::invalid_argument when the shapes disagree (backward needs buckets + 1 spans,
/// copy_out one per bucket), there is no rank, or a duration is negative.
void check(const StepInput& input);

/// The same, and one clock per rank.
void check(const StepInput& input, std::span<const RankClock> clocks);

}  // namespace stepsim
