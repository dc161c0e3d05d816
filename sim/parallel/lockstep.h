#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/parallel/step.h"
#include "sim/parallel/step_program.h"

namespace stepsim {

/// What the hosts of all ranks do next, each at its own time.
struct LockstepMove {
  Opcode kind = Opcode::Host;
  std::uint8_t stream = kComputeStream;
  Phase phase = Phase::Other;
  /// Work: the stretch, or -1 for work of the same length on all ranks. Host: -1, or the
  /// micro-batch whose batch is built. Collective, StreamWait, HostWait: the number of the
  /// collective in the order of the calls. Record, EventWait, HostEvent, Mark: as in the program.
  std::int32_t index = -1;
  Duration host{0};
  Duration latency{0};
  Duration work{0};

  /// Whether both are the same but for their times.
  [[nodiscard]] bool does_as(const LockstepMove& other) const {
    return kind == other.kind && stream == other.stream && phase == other.phase &&
           index == other.index;
  }
};

/// A stretch of work on one stream: kernels that follow one another, by the numbers that their
/// labels hold.
struct LockstepStretch {
  std::int32_t micro_batch = 0;
  Phase phase = Phase::Other;
  std::vector<std::int32_t> work;  ///< Of rank 0, and of all others where of_rank is empty.
  /// [rank] Where ranks do different work: the optimizer, whose states they share out.
  std::vector<std::vector<std::int32_t>> of_rank;

  [[nodiscard]] const std::vector<std::int32_t>& work_of(int rank) const {
    return of_rank.empty() ? work : of_rank[static_cast<std::size_t>(rank)];
  }
};

/// A step in which the hosts of all ranks run the same instructions: the form that
/// play_lockstep() plays. Ranks differ by which kernels these launch, how long those take, and by
/// which group they meet.
struct LockstepSchedule {
  StepProgram program;  ///< Of the collectives; the ranks' instructions are not kept.
  std::vector<LockstepMove> moves;
  std::vector<LockstepStretch> stretches;
  /// [in the order of the calls][rank] the collective of the program.
  std::vector<std::vector<std::int32_t>> collectives;
  int micro_batches = 0;
};

/// The schedule of a program whose kernels of the model and of the optimizer have numbers for
/// labels and take no time. None: its ranks do different things, or one waits for what it does not
/// know when it calls, or for a batch from a loader.
[[nodiscard]] std::optional<LockstepSchedule> lockstep_schedule(StepProgram program);

/// Returns the same schedule with the times of another program of such a step. Rank 0 of that is
/// enough, since what the ranks share takes as long for all. Throws std::invalid_argument: its rank
/// 0 does something else.
[[nodiscard]] LockstepSchedule retimed(LockstepSchedule schedule, StepProgram first_rank);

/// How long a rank's own work takes in one step.
struct LockstepWork {
  std::vector<Duration> data;   ///< [micro-batch] The host builds the batch.
  std::vector<Span> copies;     ///< [micro-batch] The batch is copied to the device.
  std::vector<Span> stretches;  ///< [stretch]
};

/// Plays a step as a max-plus recurrence over its moves, without events:
///
///   start(c) = max(max_r arrival(c, r), end(c' before it on the communicator)) + start_delay
///   end(c)   = start(c) + transfer(c)
///
/// `transfers`: [collective of the program]. `rules` must have no interference and no bound queue.
/// It agrees with the engine to the nanosecond. None: two transfers of a communicator with several
/// workers would run at once, and share its links.
[[nodiscard]] std::optional<ExecutionTrace> play_lockstep(const LockstepSchedule& schedule,
                                                          std::span<const LockstepWork> ranks,
                                                          std::span<const Duration> transfers,
                                                          const EngineRules& rules,
                                                          std::span<const RankClock> clocks);

}  // namespace stepsim
