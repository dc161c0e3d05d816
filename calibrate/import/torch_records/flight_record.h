#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace stepsim {

/// One collective in a dump of PyTorch's Flight Recorder.
struct FlightEntry {
  std::string group;            ///< The process group's name.
  std::int64_t number = 0;      ///< Counts the group's collectives.
  std::string kind;             ///< "all_reduce", …; see collective_kind_of_call().
  std::string state;            ///< "scheduled", "started", "completed"; gloo's stay scheduled.
  std::int64_t created_ns = 0;  ///< When the host launched it, since 1970.
  std::optional<std::int64_t> bytes;  ///< Of the whole buffer; absent where nothing tells it.
  std::optional<double> duration_ms;  ///< NCCL's, where its timing was on.
};

/// What one rank dumped, in the order of launches.
struct FlightDump {
  std::string file;
  int rank = 0;
  std::string version;
  std::vector<FlightEntry> entries;
  std::int64_t point_to_point = 0;  ///< Sends and receives, which are not kept.
};

/// Reads dumps of torch._C._distributed_c10d._dump_fr_trace_json() or _dump_nccl_trace_json(), one
/// a rank. Its rank is the number behind "rank" in the file's name, else its place.
///
/// Raises InputError: no such JSON (a pickle, as the other dump functions make: how to write JSON
/// is said), an entry without its members, the same rank twice.
[[nodiscard]] std::vector<FlightDump> read_flight_dumps(const std::vector<std::string>& files);

/// The steps that repeat at the end of a dump.
struct FlightSteps {
  std::size_t first = 0;        ///< The entry that begins the first whole step.
  std::size_t period = 0;       ///< Collectives of a step; 0: nothing repeats three times.
  std::vector<double> step_ms;  ///< From one step's first collective to the next one's.
};

/// Finds the shortest sequence of collectives (group, kind, size) that the end of the dump repeats,
/// three times at least and over as many entries as any. A step begins behind the longest pause.
[[nodiscard]] FlightSteps flight_steps(const FlightDump& dump);

/// How far apart ranks launched the same collectives.
struct FlightSkew {
  std::size_t matched = 0;  ///< Collectives that all dumps have, from the steady steps on.
  double median_ms = 0;     ///< From the first rank's launch to the last one's.
  double longest_ms = 0;
  std::map<int, std::size_t> last;  ///< [rank] How often it came last.
  std::string parted;               ///< Where ranks launched different ones; empty: nowhere.
};

/// Matches the dumps' collectives by group and number. `steps`: [dump]
[[nodiscard]] FlightSkew flight_skew(std::span<const FlightDump> dumps,
                                     std::span<const FlightSteps> steps);

}  // namespace stepsim
