#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/engine/program.h"
#include "sim/replay/launch_trace.h"

namespace stepsim {

/// The times that the recorded calls do not hold. Defaults: as seen on 8 V100 of one node (PyTorch
/// DLRM recorded with Kineto, 8 ranks, one step).
struct ReplayRules {
  Duration launch_latency{7'000};  ///< From a launch to the start of a kernel or copy.
  Duration nccl_latency{10'000};   ///< From a launch to the readiness of a collective's kernel.
  Duration wait_latency{1'000};    ///< From a collective's end to the work that waits for it.
  Duration collective_gap{1'000};  ///< Between collectives on the communication stream.
  Duration sync_call{3'000};       ///< A synchronisation takes at least this,
  Duration sync_latency{5'000};    ///< and ends so long after the stream's last end.
  Duration copy_call{8'000};       ///< A blocking copy: the same, in place of its recorded call,
  Duration copy_latency{7'000};    ///< which holds the wait.
};

/// What to replay in place of the recording as it is.
struct LaunchChoices {
  bool barrier = true;  ///< False: no rank waits for the others in a collective.
  std::optional<std::int32_t> ranks_from =
      std::nullopt;  ///< The program of this rank on all ranks.
  /// Recorded kernel durations of this rank as transfer times; kShortest: of the rank where each is
  /// shortest (the last to arrive, so that it holds no wait).
  std::optional<std::int32_t> transfers_from = std::nullopt;
  double transfer_scale = 1;  ///< Factor on the transfer times.
  double cpu_scale = 1;       ///< Factor on the CPU time of calls and between them.
};
inline constexpr std::int32_t kShortest = -1;

struct ReplayedRank {
  Duration step{0};
  std::optional<Duration> measured;
};

/// One collective; the recorded figures are there when collectives.csv is.
struct ReplayedCollective {
  struct Figures {
    Duration skew{0};      ///< Between the first and the last rank's arrival.
    Duration transfer{0};  ///< From the last arrival to the first end.
    Duration end{0};       ///< On the common clock, mean over the ranks.
  };
  std::int32_t number = 0;
  std::string op;
  std::optional<std::int64_t> bytes;
  Figures replayed;
  std::optional<Figures> measured;
  Duration worst_end_error{0};  ///< Replayed less measured, of the rank where it is largest.
};

struct LaunchReplay {
  std::string path;
  std::vector<ReplayedRank> ranks;
  std::vector<ReplayedCollective> collectives;  ///< In launch order; empty without the barrier.
};

/// Lowers the recording to a program of the engine. Communicators: one of all ranks, or without the
/// barrier one a rank (collective c of rank r is number r * collectives + c then).
[[nodiscard]] Program lower(const LaunchTrace& recording,
                            const ReplayRules& rules,
                            const LaunchChoices& choices);

/// Plays a recording. Per row, with t the rank's CPU clock: t += gap, then
///   cpu: t += call. gpu: start = max(t + launch_latency, stream free, end of the awaited
///   collective + wait_latency); t += call. d2h: the same, but t = max(t + copy_call, end +
///   copy_latency). sync: t = max(t + sync_call, stream free + sync_latency). nccl: ready =
///   max(t + nccl_latency, free time of the producer stream); t += call. end: the step ends at t.
/// A collective starts at max(latest ready over ranks, end of the one before + collective_gap) and
/// takes its transfer time on every rank.
///
/// Raises InputError: a rank of `choices` that is not there, a collective without transfer time.
[[nodiscard]] LaunchReplay replay(const LaunchTrace& recording,
                                  const ReplayRules& rules = {},
                                  const LaunchChoices& choices = {});

}  // namespace stepsim
