#pragma once

#include <string>
#include <vector>

#include "costmodel/records/profile.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// When the steps ran that a profile's costs were fitted to, by the clock of their host.
struct RecordingSpan {
  std::string host;
  std::string started_at;  ///< ISO 8601, UTC.
  double from_ms = 0;      ///< The first step's start.
  double to_ms = 0;        ///< The last one's end.
};

/// The spans that the profile's provenance states; none where it was not made of recorded steps, or
/// by a version that did not write them.
[[nodiscard]] std::vector<RecordingSpan> recording_spans(const Profile& profile);

/// Whether the live run went on beside a recording: on the same host, for half of its time or more.
/// The machine was then as fast for both.
[[nodiscard]] bool ran_beside(const RunRecord& live, const std::vector<RecordingSpan>& recordings);

}  // namespace stepsim
