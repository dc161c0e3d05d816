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
  /// Work: the stretch, or -1 for work of the same length on all ranks; of a batch, as HostUntil:
  /// the micro-batch. Collective, StreamWait, HostWait: the number of the
  /// collective in the order of the calls. Record, EventWait, HostEvent, Mark: as in the program.
  std::int32_t index = -1;
  Bound bound = Bound::Compute;  ///< Work of the same length on all ranks, and so are its blocks.
  std::int32_t blocks = 0;
  Duration host{0};
  Duration latency{0};
  Duration work{0};

  /// Whether both are the same but for their times.
  [[nodiscard]] bool does_as(const LockstepMove& other) const {
    return kind == other.kind && stream == other.stream && phase == other.phase &&
           index == other.index && bound == other.bound && blocks == other.blocks;
  }
};

/// Kernels that follow one another, by the numbers that their labels hold, so many times: the
/// layers of a model are alike.
struct RepeatedWork {
  std::vector<std::int32_t> work;
  int times = 1;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 of the comparison for one.
  auto operator<=>(const RepeatedWork&) const = default;
};

/// Returns the same work with what repeats in it stated once.
[[nodiscard]] std::vector<RepeatedWork> repeated_work(const std::vector<std::int32_t>& work);
/// And the kernels of it one by one.
[[nodiscard]] std::vector<std::int32_t> kernels_of(const std::vector<RepeatedWork>& work);

/// A stretch of work on one stream.
struct LockstepStretch {
  std::int32_t micro_batch = 0;
  Phase phase = Phase::Other;
  std::vector<RepeatedWork> work;  ///< Of rank 0, and of all others where of_rank is empty.
  /// [rank] Where ranks do different work: the optimizer, whose states they share out.
  std::vector<std::vector<RepeatedWork>> of_rank;
  std::int32_t first_alike = -1;  ///< The first stretch with this work: this one, or one before.

  [[nodiscard]] const std::vector<RepeatedWork>& work_of(int rank) const {
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
/// know when it calls.
[[nodiscard]] std::optional<LockstepSchedule> lockstep_schedule(StepProgram program);

/// What of a schedule takes time, other than the ranks' own work.
struct LockstepTimes {
  std::vector<LockstepMove> moves;
  std::vector<Duration> transfers;  ///< [in the order of the calls]
};

/// The times that another program of such a step has in place of the schedule's. Rank 0 of it is
/// enough, since what the ranks share takes as long for all. Throws std::invalid_argument: its rank
/// 0 does something else.
[[nodiscard]] LockstepTimes times_of(const LockstepSchedule& schedule,
                                     const StepProgram& first_rank);

/// Returns the same schedule with other times.
[[nodiscard]] LockstepSchedule retimed(LockstepSchedule schedule, LockstepTimes times);

/// How long a rank's own work takes in one step.
struct LockstepWork {
  std::vector<SimTime> ready;   ///< [micro-batch] The loader has it no earlier; empty: no workers.
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
