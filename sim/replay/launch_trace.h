#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/io/csv_table.h"

namespace stepsim {

/// What one recorded call of a rank's CPU did.
enum class Launch : std::uint8_t {
  Cpu,           ///< Nothing on the GPU.
  Gpu,           ///< Put a kernel, copy or memset on a stream.
  BlockingCopy,  ///< Put a copy on a stream and waited for its end ("d2h").
  Sync,          ///< Waited until a stream had nothing left.
  Collective,    ///< Put this rank's part of a collective on a stream ("nccl").
  End            ///< The step ends.
};

/// One row of a launch recording.
struct LaunchRow {
  Launch type = Launch::Cpu;
  std::uint8_t stream = 0;             ///< Engine stream; not for Cpu and End.
  std::int32_t collective = -1;        ///< Collective: its number.
  std::int32_t waits_collective = -1;  ///< Gpu, BlockingCopy: starts after its end; -1 = none.
  Duration gap{0};   ///< CPU time since the previous call ended; below zero where calls overlap, by
                     ///< no more than the previous call took.
  Duration host{0};  ///< Of the call.
  Duration work{0};  ///< On the GPU; of a Collective its residency with the wait for other ranks.
};

/// A collective as defined beside the recording.
struct LaunchCollective {
  std::string op;
  std::optional<std::int64_t> bytes;
  std::optional<std::uint8_t> producer;  ///< Engine stream whose work so far it waits for.
  std::optional<Duration> transfer;      ///< From the last rank's arrival to the end.
};

/// When a collective's kernel ran on one rank, on the clock of all ranks.
struct RecordedKernel {
  Duration start{0};
  Duration end{0};
};

/// One step of all ranks as their CPUs launched it.
///
/// Every rank launches the same collectives in the same order, each once; no row waits for a
/// collective that its rank has not launched before. So a replay comes to its end.
struct LaunchTrace {
  std::string path;                                ///< Of the rows.
  std::vector<std::vector<LaunchRow>> rows;        ///< [rank]
  std::vector<Duration> start;                     ///< [rank] of the step, on the common clock.
  std::vector<std::optional<Duration>> measured;   ///< [rank] length of the step.
  std::vector<LaunchCollective> collectives;       ///< [number]
  std::vector<std::vector<RecordedKernel>> ended;  ///< [collective][rank]; empty: not recorded.
  std::vector<std::int32_t> order;                 ///< Collectives in launch order.
};

/// Takes the rows from `program`, and reads ranks.csv and collective_defs.csv, and collectives.csv
/// when there is one, from its folder. Columns: scenarios/README.md, "Programs to replay".
///
/// Raises InputError with file, line and column.
[[nodiscard]] LaunchTrace read_launch_trace(const CsvTable& program);

}  // namespace stepsim
