#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/records/profile.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// Which part of a run a trace shows, and how.
struct TraceChoice {
  std::vector<int> ranks;  ///< Ascending; empty: all.
  std::vector<int> steps;  ///< Ascending; empty: all.
  bool by_part = false;    ///< One slice for a part of a step in place of each op.
};

struct TraceFiles {
  int ranks = 0;
  int steps = 0;
  std::int64_t text_bytes = 0;  ///< Bytes of JSON, before packing.
  std::int64_t file_bytes = 0;  ///< Packed, where the file is.
  std::int64_t left_out = 0;    ///< Work that takes no time.
};

/// Most slices of one trace; a browser gives up on far fewer than memory would allow.
inline constexpr std::int64_t kMaxTraceSlices = 5'000'000;
/// Most files that are written side by side.
inline constexpr int kMaxTraceFiles = 512;

/// Predicts one policy without noise and writes its timeline as a Chrome trace, packed when `path`
/// ends in ".gz". Steps are written as they are played: memory does not grow with their number.
///
/// Raises InputError: as predict(); more than kMaxTraceSlices. EnvironmentFault: cannot write.
TraceFiles write_chrome_trace(const Scenario& scenario,
                              const BatchingPolicy& policy,
                              const Profile& profile,
                              const TraceChoice& choice,
                              const std::string& path);

/// Writes traces as PyTorch's profiler does, one a rank: `folder`/rankN.pt.trace.json.gz. Makes the
/// folder. Raises also InputError: more than kMaxTraceFiles ranks; the folder holds other traces.
TraceFiles write_profiler_traces(const Scenario& scenario,
                                 const BatchingPolicy& policy,
                                 const Profile& profile,
                                 const TraceChoice& choice,
                                 const std::string& folder);

}  // namespace stepsim
