#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "sim/predict/step_picture.h"
#include "sim/study/bucket_cap_sweep.h"

namespace stepsim {

/// A timeline's place among those of a page.
struct TimelineLabel {
  std::string policy;
  std::string label;   ///< "25 MiB", or the value of the key that is swept.
  double mean_ms = 0;  ///< Of the steady steps at this setting; a sweep: as in its table.
  bool is_best = false;
  bool is_own = false;  ///< The scenario as it stands.
};

/// Most ranks of a timeline; of more, some from the one with the least compute to the one with the
/// most.
inline constexpr std::size_t kMaxDrawnRanks = 16;

/// One step as the page draws it:
///
///   {"policy", "label", "cap_bytes", "default", "own", "best", "step", "mean_ms",
///    "shown_us": from the last rank's start to the last rank's end,
///    "buckets": [[bytes, tensors], …],
///    "ranks": [{"rank", "useful", "padded",
///      "compute": [[start, duration, kind], …],
///      "buckets": [[ready, start, end, bucket], …],
///      "exposed": [[start, duration], …], "waiting": [[start, duration], …]}, …]}
///
/// Times are microseconds from the first rank's start, rounded to 0.1. Kinds: 0 data, 1 forward, 2
/// backward, 3 optimizer, 4 other (copies out of buckets); neighbours of one kind are one piece,
/// the host's launches between them included. A collective that is not of a bucket has -1 and its
/// name behind it. Exposed: the compute stream waits while a transfer moves; waiting: the rest of
/// its waits, for ranks that have not come.
[[nodiscard]] Json timeline_json(const TimelineLabel& label, const StepPicture& picture);

/// The timelines of a policy's bucket caps. The best has the shortest mean step of those that fit
/// into memory. A cap that cannot be priced is left out and `warnings` says why.
[[nodiscard]] Json valley_json(const std::vector<CapPoint>& valley,
                               std::vector<std::string>& warnings);

}  // namespace stepsim
