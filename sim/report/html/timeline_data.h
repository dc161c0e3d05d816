#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/io/json_file.h"
#include "sim/predict/step_picture.h"
#include "sim/study/bucket_cap_sweep.h"

namespace stepsim {

/// What the page calls a timeline, and how it compares with the others.
struct TimelineLabel {
  std::string policy;
  std::string label;   ///< "25 MiB", or the value of the swept key.
  double mean_ms = 0;  ///< Mean of the steady steps at this setting, as a sweep's table states it.
  bool is_best = false;
  bool is_own = false;                    ///< True: this is the scenario without changes.
  std::optional<std::size_t> point = {};  ///< Which one of a sweep it is.
  /// This is the interval of the mean in milliseconds; there is none where nothing was drawn.
  std::optional<std::pair<double, double>> interval90 = {};
  double memory_mib = 0;  ///< The peak of a rank; 0: not known.
  double memory_capacity_mib = 0;
  bool is_out_of_memory = false;
};

/// What a timeline says of a prediction; it is neither the best nor the scenario's own.
[[nodiscard]] TimelineLabel labelled(const Prediction& prediction,
                                     const std::string& label,
                                     Bytes memory_capacity);

/// The most ranks that a timeline draws. If there are more, those drawn range evenly from the one
/// with the least compute to the one with the most.
inline constexpr std::size_t kMaxDrawnRanks = 16;

/// Returns one step as the page draws it:
///
///   {"policy", "label", "point", "cap_bytes", "default", "own", "best", "step", "mean_ms",
///    "shown_us": from the last rank's start to the last rank's end,
///    "buckets": [[bytes, tensors], …], "units": whether these are units of sharded training,
///    "ranks": [{"rank", "useful", "padded",
///      "compute": [[start, duration, kind], …],
///      "buckets": [[ready, start, end, bucket], …],
///      "exposed": [[start, duration], …], "waiting": [[start, duration], …]}, …]}
///
/// Times are microseconds from the first rank's start, rounded to 0.1. Kinds are 0 data, 1 forward,
/// 2 backward, 3 optimizer and 4 other (copies out of buckets). Neighbours of one kind are merged,
/// with the host's launches between them. A collective that moves no bucket has bucket -1, followed
/// by its name. "exposed" are the times when the compute stream waits while a transfer moves;
/// "waiting" are its other waits, for ranks that have not arrived.
[[nodiscard]] Json timeline_json(const TimelineLabel& label, const StepPicture& picture);

/// Returns the timelines of a policy's bucket caps. The best one has the shortest mean step of
/// those that fit into memory. A cap that cannot be priced is left out, and `warnings` says why.
[[nodiscard]] Json cap_timelines_json(const std::vector<CapPoint>& caps,
                                      Bytes memory_capacity,
                                      std::vector<std::string>& warnings);

}  // namespace stepsim
