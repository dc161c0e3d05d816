#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stepsim {

/// First meetings of shapes over a whole epoch, without simulating it.
struct EpochShapes {
  int steps = 0;
  std::int64_t builds = 0;     ///< First meetings of all ranks.
  int stalled_steps = 0;       ///< Steps in which some rank meets a shape.
  double step_ms = 0;          ///< Mean step, first meetings included.
  double warm_up_seconds = 0;  ///< What the rank with most of them would spend before the epoch.
};

/// What new shapes cost a policy, over the steps that were simulated, from the very first one.
struct ShapeSummary {
  std::vector<std::string> mechanisms;
  std::int64_t builds = 0;  ///< First meetings of all ranks.
  int stalled_steps = 0;    ///< Steps in which some rank meets a shape.
  double warm_ms = 0;       ///< Mean step once every shape is known.
  double run_ms = 0;        ///< Mean step of the run, first meetings included.
  /// Every rank meets its shapes before the run, which then stalls no more: what the rank with most
  /// of them spends, without the passes themselves.
  double warm_up_seconds = 0;
  /// The part of the building that the device did not wait for, as its host ran ahead: 0 to 1.
  double hidden = 0;
  bool warmed_up = false;              ///< The run had such a warm-up.
  bool gave_up = false;                ///< A compiler met its limit of graphs.
  std::vector<double> step_ms;         ///< [step] without noise
  std::vector<double> lost_ms;         ///< [step] how much longer it took for first meetings.
  std::vector<std::int64_t> distinct;  ///< [step] shapes (samples, length) met until its end.
  std::optional<EpochShapes> epoch;    ///< Absent: a played plan that is no whole epoch.
};

class Run;
struct Prediction;

/// Summarises first meetings for a prediction whose rows and step times are there. Nothing where
/// new shapes cost nothing.
[[nodiscard]] std::optional<ShapeSummary> shape_summary(Run& run, const Prediction& prediction);

}  // namespace stepsim
