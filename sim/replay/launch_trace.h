#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/io/csv_table.h"

namespace stepsim {

/// What one recorded call of a rank's CPU did.
enum class CallType : std::uint8_t {
  Cpu,           ///< It did nothing on the GPU.
  Gpu,           ///< It put a kernel, copy or memset on a stream.
  BlockingCopy,  ///< It put a copy on a stream and waited for its end ("d2h").
  Sync,          ///< It waited until a stream was idle.
  Collective,    ///< It put this rank's part of a collective on a stream ("nccl").
  End            ///< It ended the step.
};

/// One row of a launch recording.
struct LaunchRow {
  CallType type = CallType::Cpu;
  std::uint8_t stream = 0;             ///< The engine's stream; unused by Cpu and End.
  std::int32_t waits_row = -1;         ///< Gpu, BlockingCopy: it starts after this row's work.
  std::int32_t collective = -1;        ///< The number of a Collective.
  std::int32_t waits_collective = -1;  ///< Gpu, BlockingCopy: starts after it; -1: after none.
  Duration gap{0};  ///< CPU time since the previous call ended. It is negative where calls overlap,
                    ///< but by no more than the previous call took.
  Duration host{0};  ///< CPU time of the call.
  Duration work{0};  ///< Time on the GPU; a Collective's includes the wait for other ranks.
  Duration held{0};  ///< Gpu, BlockingCopy: how long it stands still once it could start.
};

/// A collective, as collective_defs.csv defines it.
struct LaunchCollective {
  std::string op;
  std::optional<std::int64_t> bytes;
  std::optional<std::uint8_t> producer;  ///< The engine's stream whose work so far it waits for.
  std::optional<Duration> transfer;      ///< From the last rank's arrival to the end.
};

/// When a collective's kernel ran on one rank, on the clock that all ranks share.
struct RecordedKernel {
  Duration start{0};
  Duration end{0};
};

/// One step of all ranks, as their CPUs launched it.
///
/// Every rank launches the same collectives in the same order, each once, and no row waits for a
/// collective that its rank has not launched yet. Therefore a replay always ends.
struct LaunchTrace {
  std::string path;                               ///< The file that the rows were read from.
  std::vector<std::vector<LaunchRow>> rows;       ///< [rank][row]
  std::vector<Duration> start;                    ///< [rank] step start, on the common clock.
  std::vector<std::optional<Duration>> measured;  ///< [rank] measured length of the step.
  std::vector<bool> cut;                      ///< [rank] The recording lacks a part of the step.
  std::vector<LaunchCollective> collectives;  ///< [number]
  std::vector<std::vector<RecordedKernel>> kernels;  ///< [collective][rank]; empty: not recorded.
  std::vector<std::int32_t> order;                   ///< Collective numbers in launch order.
};

/// Reads a recording: the rows from `program`, and ranks.csv, collective_defs.csv and, if it
/// exists, collectives.csv from its folder. scenarios/README.md, "Programs to replay", lists the
/// columns.
///
/// Raises InputError with file, line and column.
[[nodiscard]] LaunchTrace read_launch_trace(const CsvTable& program);

}  // namespace stepsim
