#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// One collective as several ranks recorded it. Times are in nanoseconds, on aligned clocks.
struct KinetoMatch {
  std::string kind;
  std::string dtype;
  std::string group;
  std::optional<std::int64_t> bytes;  ///< The most over the ranks: all-to-alls may be uneven.
  bool bucket = false;                ///< See KinetoCollective.
  std::int64_t step = -1;             ///< The ProfilerStep's number; -1 where a trace has none.
  int group_size = 0;                 ///< The ranks of its group; 0 = not known.
  int index = 0;                      ///< Counts those of its group in the step.
  std::vector<int> ranks;           ///< The ranks whose traces hold it, in the order of the traces.
  std::vector<std::size_t> places;  ///< [rank of `ranks`] Index in KinetoTrace::collectives.
  /// Whether every member of its group is among `ranks`. If not, `transfer_ns` is an upper bound
  /// only, since the last to arrive may be one that is missing.
  bool complete = false;
  std::int64_t transfer_ns = 0;    ///< Earliest end - latest start: without the wait.
  std::int64_t skew_ns = 0;        ///< Latest start - earliest start.
  std::int64_t end_spread_ns = 0;  ///< Latest end - earliest end.
  std::int64_t shortest_ns = 0;    ///< The shortest recorded length, with the wait,
  std::int64_t longest_ns = 0;     ///< and the longest.
};

struct KinetoMatches {
  std::vector<KinetoMatch> matches;    ///< Sorted by group, step and index.
  std::vector<int> ranks;              ///< [trace] Its rank, or its place where it states none.
  std::vector<std::int64_t> shift_ns;  ///< [trace] What was taken off its clock; 0 for the first.
  std::vector<std::string> unmatched;  ///< Which collectives have no partner, and why.
  std::vector<std::string> warnings;
};

/// Matches the collectives of all ranks by their order in the same process group and step, and
/// aligns clocks whose collectives end at steadily different times (other hosts). Where kind or
/// bytes disagree, the rest of that step is left unmatched.
///
/// Raises InputError when two traces are of one rank, or of different world sizes.
[[nodiscard]] KinetoMatches match_collectives(std::span<const KinetoTrace> traces);

}  // namespace stepsim
