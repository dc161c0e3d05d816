#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/network/interference.h"

namespace stepsim {

/// What an instruction of a rank's host thread does.
enum class Opcode : std::uint8_t {
  Host,        ///< The host is busy for `host`.
  HostUntil,   ///< The host waits until the time `until` (a batch from the loader).
  Work,        ///< Enqueues `work` on `stream`; it starts no earlier than the call plus `latency`.
  Collective,  ///< Enqueues this rank's part of `collective`: ready after the call plus `latency`
               ///< and after all that was enqueued on `stream` so far (kNoStream: nothing).
  StreamWait,  ///< `stream` goes on `latency` after the end of `collective`.
  Record,      ///< Notes on `stream` that all enqueued so far is done, as event `index`.
  EventWait,   ///< `stream` goes on after event `index` of this rank.
  HostWait,    ///< The host goes on `latency` after the end of `collective`.
  HostEvent,   ///< The host goes on `latency` after event `index` of this rank.
  HostSync,    ///< The host goes on `latency` after `stream` has nothing left, and not before the
               ///< call plus `host`.
  Mark         ///< Notes when `stream` gets here, as mark number `index`.
};

/// What a stretch of time on the compute stream is counted as.
enum class Phase : std::uint8_t {
  Data,
  Forward,
  Backward,
  CopyOut,
  Optimizer,
  Wait,
  Other,          ///< Work beside the model's ops. On the compute stream it is of the forward,
  BackwardOther,  ///< this of the backward,
  OptimizerOther  ///< and this of what follows it.
};
inline constexpr std::size_t kPhases = 9;

inline constexpr std::uint8_t kComputeStream = 0;
/// A stream beside the compute stream: casts and decompression of hooks, optimizer in backward.
inline constexpr std::uint8_t kSideStream = 1;
inline constexpr std::size_t kStreams = 8;
inline constexpr std::uint8_t kNoStream = 255;

/// One instruction; plain data. Every call keeps the host busy for `host`.
struct Instruction {
  Opcode kind = Opcode::Host;
  std::uint8_t stream = kComputeStream;
  Phase phase = Phase::Other;
  Bound bound = Bound::Compute;  ///< Work: what a resident collective takes from it.
  std::int32_t index = -1;       ///< Collective, event or mark.
  std::int32_t blocks = 0;       ///< Work: thread blocks (compute_slowdown()).
  std::int32_t label = -1;       ///< Program::labels; -1 = none.
  Duration host{0};
  Duration latency{0};
  Duration work{0};
  SimTime until{};  ///< HostUntil.
};

/// A transfer that all ranks of a communicator take part in.
struct Collective {
  std::int32_t communicator = 0;
  Duration transfer{0};       ///< From the last rank's arrival to the end, nothing in the way.
  std::int32_t channels = 0;  ///< Multiprocessors it holds on each rank while resident.
  std::int32_t label = -1;
};

/// Who talks to whom, and how: the one seam between NCCL and gloo.
///
/// NCCL: one worker (a stream; collectives one at a time, in order), a stream waits. gloo: two
/// workers that take collectives from a queue and share the links; the host thread waits, which a
/// program says by its instructions.
struct Communicator {
  std::vector<std::int32_t> ranks;  ///< Empty: all ranks.
  std::int32_t workers = 1;         ///< Collectives in flight at once on a rank.
  bool shares_links = false;        ///< Concurrent transfers split the bandwidth evenly.
  Duration start_delay{0};          ///< From the last arrival to the start of the transfer.

  bool operator==(const Communicator&) const = default;
};

/// What every rank's host does, and the collectives it names.
struct Program {
  std::vector<std::vector<Instruction>> ranks;
  std::vector<Collective> collectives;
  std::vector<std::string> labels;
  std::int32_t marks = 0;   ///< Marks are numbered 0 .. marks - 1 on every rank.
  std::int32_t events = 0;  ///< Events are numbered likewise; each is recorded once.
};

}  // namespace stepsim
