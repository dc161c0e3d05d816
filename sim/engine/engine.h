#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "costmodel/network/interference.h"
#include "sim/engine/execution_trace.h"
#include "sim/engine/program.h"
#include "sim/engine/rank_clock.h"

namespace stepsim {

/// The collectives of each communicator in the order in which all its ranks launch them:
/// [communicator].
using CollectiveOrder = std::vector<std::vector<std::int32_t>>;

/// The rules that hold for every program that an engine plays.
struct EngineRules {
  std::vector<Communicator> communicators = {{}};
  Interference interference;
  /// How many launches the host can be ahead of one stream; 0: any number. About 1000 on CUDA.
  std::int32_t queue_depth = 0;

  bool operator==(const EngineRules&) const = default;
};

/// Plays programs by discrete events. Per rank: a host thread that runs its instructions, streams
/// that run what was enqueued in order, and a place in each communicator.
///
/// Rules: work starts when its stream is free and its call's latency has passed. A rank's part of a
/// collective arrives when its producer stream got there; a worker takes parts in launch order and
/// holds the part until the end. The transfer starts when a worker of every rank holds it, and ends
/// on all ranks together. With interference, rates change whenever a collective becomes resident or
/// ends and whenever compute starts or ends; what is under way is rescheduled. Work that follows
/// work on a stream is one event as long as no rate changes. Where spans are recorded each piece of
/// work has its own, to the same times: a rate that changes and changes back within a nanosecond,
/// in which ranks have no order, rounds nothing.
class Engine {
 public:
  /// `clocks` holds the clocks of all ranks at the beginning. Programs that are played one after
  /// another continue from where the last one ended.
  Engine(EngineRules rules, std::span<const RankClock> clocks);

  /// Plays one program to its end on all ranks. `record_spans`: the trace holds all work, all waits
  /// and the calls of collectives.
  ///
  /// Raises InputError: a clock passes kTimeLimit. Throws std::invalid_argument: ranks, streams,
  /// marks or collectives that do not exist, or ranks that launch the collectives of a communicator
  /// in different orders; std::runtime_error: ranks that wait for ever, naming one and what it
  /// waits for.
  [[nodiscard]] ExecutionTrace play(const Program& program, bool record_spans = false);

  /// Plays a program that has been checked by check_program(), but for its times. `order`: as
  /// collective_order() found it; the times may have changed since.
  [[nodiscard]] ExecutionTrace play(const Program& program, const CollectiveOrder& order);

  [[nodiscard]] const EngineRules& rules() const { return rules_; }
  [[nodiscard]] const std::vector<RankClock>& clocks() const { return clocks_; }
  /// A chain of work is one event where events are needed. Else each piece of work, each part of a
  /// collective and each transfer is one.
  [[nodiscard]] std::uint64_t events_handled() const { return events_handled_; }

 private:
  /// The launches on one stream since the engine began. `ends` is a ring: the ends of the last
  /// queue_depth launches.
  struct LaunchQueue {
    std::int64_t launched = 0;
    std::int64_t ended = 0;
    std::vector<SimTime> ends;
    std::size_t place_of_next = 0;  ///< In the ring: of the next launch,
    std::size_t place_of_end = 0;   ///< and of the next end.

    void launch(std::int32_t depth) {
      ++launched;
      place_of_next = after(place_of_next, depth);
    }
    void end(SimTime time, std::int32_t depth) {
      if (ended < depth) {
        ends.push_back(time);
      } else {
        ends[place_of_end] = time;
      }
      ++ended;
      place_of_end = after(place_of_end, depth);
    }

   private:
    /// The place after one in the ring. A division for each launch would take longer.
    static std::size_t after(std::size_t place, std::int32_t depth) {
      return static_cast<std::int64_t>(place) + 1 < depth ? place + 1 : 0;
    }
  };

  EngineRules rules_;
  std::vector<RankClock> clocks_;
  std::vector<std::array<LaunchQueue, kStreams>> queues_;  ///< [rank][stream]
  std::uint64_t events_handled_ = 0;

  friend class OrderedExecution;
  friend class ProgramExecution;
};

}  // namespace stepsim
