#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "costmodel/base/progress_callback.h"

namespace stepsim {

/// More ranks than any run has: larger numbers in a file are damage.
inline constexpr std::int64_t kMaxKinetoRanks = 100'000;

/// The arguments of an event that are kept.
enum class KinetoArg {
  Correlation,
  Stream,
  CollectiveName,
  InElements,
  OutElements,
  Dtype,
  GroupSize,
  GroupName,
  GroupRanks,
  InputDims,
  InputType,
  Sequence,
  Communicator,
  WaitOnStream,
  WaitOnRecord,
  Count
};

/// One row of the trace. Members are empty or absent where the file has nothing, or no number that
/// is zero or more.
struct KinetoEvent {
  std::string phase;
  std::string category;
  std::string name;
  std::string process;
  std::string thread;
  std::optional<std::int64_t> start_ns;  ///< Since the file's base time.
  std::optional<std::int64_t> duration_ns;
  /// The arguments as written, at most 4 KiB each; lists look like "[[1,2],[3]]".
  std::array<std::string, static_cast<std::size_t>(KinetoArg::Count)> args;

  [[nodiscard]] const std::string& arg(KinetoArg which) const {
    return args[static_cast<std::size_t>(which)];
  }
  /// The argument as a number; absent when it is none.
  [[nodiscard]] std::optional<std::int64_t> integer(KinetoArg which) const;
  /// Empties it; its texts keep their memory for the next row.
  void clear();
};

/// What stands beside the events. Paths, hosts, jobs and users are not read.
struct KinetoHeader {
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> world_size;
  std::string backend;
  std::string nccl_version;
  std::string device;             ///< The name of the first device.
  int devices = 0;                ///< Devices that the process saw; 0 = not recorded.
  std::int64_t base_ns = 0;       ///< The Unix time that the events' times count from.
  bool fractional_times = false;  ///< The new schema: microseconds with decimals.
  std::int64_t repaired = 0;      ///< Characters and values that JSON does not allow.
};

/// How rows are read: those that are plain JSON by simdjson and the others by the character, or all
/// by the character, which says the same and takes longer.
enum class KinetoParser { Fast, Tolerant };

/// Reads a Chrome trace (an object with traceEvents, or a bare list; .json or .json.gz) and hands
/// each row to `use`, which must not keep the reference. Memory does not grow with the file.
///
/// Raises InputError, with the byte offset in the unpacked text, when the file is no JSON, is cut
/// short, or is nested deeper than 100 levels; and without the offset when it has no list of
/// events, or rows that are none.
KinetoHeader read_kineto_events(const std::string& path,
                                const std::function<void(const KinetoEvent&)>& use,
                                const ProgressCallback& on_progress = {},
                                KinetoParser parser = KinetoParser::Fast);

}  // namespace stepsim
