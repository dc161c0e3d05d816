#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/engine/program.h"
#include "sim/replay/launch_trace.h"

namespace stepsim {

/// Times that the recorded calls do not hold. The defaults were seen on 8 V100 of one node (PyTorch
/// DLRM recorded with Kineto, 8 ranks, one step).
struct ReplayRules {
  Duration launch_latency{7'000};  ///< From a launch to the start of a kernel or copy.
  Duration nccl_latency{10'000};   ///< From a launch to the readiness of a collective's kernel.
  Duration wait_latency{1'000};    ///< From a collective's end to the work that waits for it.
  Duration collective_gap{1'000};  ///< Between two collectives on the communication stream.
  Duration sync_call{3'000};       ///< The least time of a synchronisation on the CPU.
  Duration sync_latency{5'000};    ///< From the stream's last end to the synchronisation's end.
  Duration copy_call{8'000};       ///< The least time of a blocking copy; the recorded call is not
                                   ///< used, since it includes the wait.
  Duration copy_latency{7'000};    ///< From the copy's end on the GPU to the call's end.
};

/// What a replay changes about the recording.
struct LaunchReplayOptions {
  bool barrier = true;  ///< False: no rank waits for the others in a collective.
  /// All ranks run the program of this rank.
  std::optional<std::int32_t> ranks_from = std::nullopt;
  /// A collective's transfer time is the recorded duration of this rank's kernel. kShortest: it is
  /// that of the rank with the shortest kernel, which arrived last and so did not wait.
  std::optional<std::int32_t> transfers_from = std::nullopt;
  double transfer_scale = 1;  ///< A factor on the transfer times.
  double cpu_scale = 1;       ///< A factor on the CPU time of calls and between them.
};
inline constexpr std::int32_t kShortest = -1;

/// The length of one rank's step.
struct ReplayedRank {
  Duration step{0};
  std::optional<Duration> measured;
  bool cut = false;  ///< The recording lacks a part of the step: it says nothing of the replay.
};

/// One collective. `measured` is absent when the recording has no collectives.csv.
struct ReplayedCollective {
  struct Figures {
    Duration skew{0};      ///< From the first rank's arrival to the last rank's.
    Duration transfer{0};  ///< From the last arrival to the first end.
    Duration end{0};       ///< The end on the common clock, as a mean over the ranks.
  };
  std::int32_t number = 0;
  std::string op;
  std::optional<std::int64_t> bytes;
  Figures replayed;
  std::optional<Figures> measured;
  Duration worst_end_error{0};  ///< Replayed end less measured end, on the rank furthest off.
};

/// The result of replaying one recorded step.
struct LaunchReplay {
  std::string path;
  std::vector<ReplayedRank> ranks;
  std::vector<ReplayedCollective> collectives;  ///< In launch order; empty without the barrier.
};

/// Lowers the recording to a program of the engine. With the barrier there is one communicator of
/// all ranks. Without it each rank has its own, and collective c of rank r becomes collective
/// number r * collectives + c.
[[nodiscard]] Program lower(const LaunchTrace& recording,
                            const ReplayRules& rules,
                            const LaunchReplayOptions& options);

/// Replays a recording.
///
/// With t the rank's CPU clock, each row first adds its gap to t; then, by its type:
///   cpu: t += call.
///   gpu: the work starts at max(t + launch_latency, stream free, end of the awaited collective +
///     wait_latency, end of the awaited row's work), and so much later as the recording held it for
///     no known reason; t += call.
///   d2h: the work starts as for gpu; t = max(t + copy_call, its end + copy_latency).
///   sync: t = max(t + sync_call, stream free + sync_latency).
///   nccl: the rank is ready at max(t + nccl_latency, producer stream free); t += call.
///   end: the step ends at t.
/// A collective starts at max(latest ready over ranks, end of the one before + collective_gap) and
/// takes its transfer time on every rank.
///
/// Raises InputError: `options` names a rank that does not exist, or a collective has no transfer
/// time.
[[nodiscard]] LaunchReplay replay(const LaunchTrace& recording,
                                  const ReplayRules& rules = {},
                                  const LaunchReplayOptions& options = {});

}  // namespace stepsim
