#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/samples/sample_log.h"

namespace stepsim {

/// One collective as NCCL Inspector saw it on one rank.
struct InspectorLine {
  std::string communicator;  ///< NCCL's number of the communicator: header.id.
  std::string name;          ///< What the program calls it; "unknown" in older versions.
  int rank = 0;
  int ranks = 1;
  int nodes = 1;
  std::string op;  ///< "all_reduce", …; as it stands in the line where it is none of ours.
  std::int64_t number = 0;  ///< Counts the collectives of this kind on the communicator.
  std::int64_t bytes = 0;   ///< Of the whole buffer, as CollectiveKind says.
  double us = 0;            ///< The longest channel, with the wait for other ranks.
  std::string timed_by;     ///< "kernel_gpu", …
};

/// The lines of NCCL Inspector's files.
struct InspectorLog {
  std::vector<std::string> files;
  std::vector<InspectorLine> lines;
  std::string version;              ///< Of the format: "v4.0" to "v4.3".
  std::int64_t point_to_point = 0;  ///< Sends and receives, which are not kept.
  std::int64_t dropped = 0;         ///< Collectives that Inspector's ring had no place for.
  std::int64_t repeated = 0;        ///< The same collective of the same rank once more.
};

/// Reads files that NCCL Inspector wrote: one JSON object a line, formats v4.0 to v4.3. A line
/// without header (v4.3) is of the communicator of the last line that has one. "-" reads standard
/// input; a last line that was cut off is dropped.
///
/// Raises InputError, with file and line: no JSON, another format, a line without its members, a
/// rank outside of its communicator, no line at all.
[[nodiscard]] InspectorLog read_inspector(const std::vector<std::string>& files);

/// One collective as all ranks that are there saw it.
struct InspectorMatch {
  const InspectorLine* first = nullptr;  ///< Of the lowest rank: kind, size, communicator.
  std::map<int, double> us;              ///< [rank]
  double transfer_us = 0;                ///< The least over the ranks: that of the last to arrive.

  /// Whether every rank of the communicator is there, so that the last one is.
  [[nodiscard]] bool is_complete() const { return static_cast<int>(us.size()) == first->ranks; }
};

/// Matches lines by communicator, kind and number; all point into `log`. Ordered by communicator,
/// kind and number. Raises InputError where the ranks of one disagree on its size.
[[nodiscard]] std::vector<InspectorMatch> match_inspector(const InspectorLog& log);

/// What of these a profile can hold, by kind, ranks and nodes.
struct InspectorSamples {
  std::vector<ImportedCollective> collectives;
  std::vector<std::string> left_out;  ///< How many, and why.
  std::vector<std::string> warnings;
};

/// Takes the transfer of each size: the median over complete matches. With `some_ranks`, sizes
/// without any complete one count, too, by the quickest of their times, which is an upper bound.
[[nodiscard]] InspectorSamples inspector_samples(const InspectorLog& log,
                                                 std::span<const InspectorMatch> matches,
                                                 bool some_ranks);

}  // namespace stepsim
