#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "costmodel/base/units.h"
#include "sim/engine/program.h"

namespace stepsim {

/// One stretch of work on a stream, for traces.
struct TraceSpan {
  std::int32_t rank = 0;
  std::int32_t label = -1;
  std::uint8_t stream = 0;
  Phase phase = Phase::Other;
  SimTime begin;
  SimTime end;
  SimTime enqueued_at{};  ///< The host's clock at the call; a wait has none.
  bool operator==(const TraceSpan&) const = default;
};

/// What happened to one collective.
struct CollectiveTrace {
  std::vector<SimTime> arrival;  ///< [rank of the engine] when its part became ready to be taken;
                                 ///< SimTime::max() for ranks that take no part.
  std::vector<SimTime> enqueued_at;  ///< [rank of the engine] the host's clock at the call; when
                                     ///< spans are recorded.
  SimTime last_arrival;              ///< The last rank is there.
  SimTime start;                     ///< The transfer starts: all ranks are there.
  SimTime end;                       ///< On all ranks.
};

/// What happened on one rank.
struct RankTrace {
  SimTime host_end;
  SimTime device_end;            ///< The compute stream's last end.
  std::vector<SimTime> marks;    ///< [mark]
  std::vector<SimTime> fetches;  ///< The host's clock after each HostUntil, in order.
  /// Time that passed on the compute stream, by what it was spent on; sums to device_end - its
  /// begin.
  std::array<Duration, kPhases> phases{};
  /// The part of the waits for collectives that ends when the last rank is there.
  Duration waiting_for_ranks{0};
  /// This part of Phase::Wait is the compute stream without work, while the host waited for another
  /// stream.
  Duration held{0};
};

struct ExecutionTrace {
  std::vector<RankTrace> ranks;
  std::vector<CollectiveTrace> collectives;
  std::vector<TraceSpan> spans;
  std::vector<TraceSpan> waits;  ///< The waits of the compute streams, when spans are recorded.
};

}  // namespace stepsim
