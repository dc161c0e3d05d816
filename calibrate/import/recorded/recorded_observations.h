#pragma once

#include <map>
#include <span>
#include <vector>

#include "calibrate/fit/pass_fit.h"
#include "calibrate/import/recorded/recorded_run.h"
#include "calibrate/import/recorded/recorded_waits.h"

namespace stepsim {

/// Wall over processor time, beside what sharing cores makes of it.
struct ProcessorRatios {
  double forward = 1;
  /// The factor of forwards, or of backwards beside all-reduces (where the buckets tell the wait
  /// apart), whichever is slowed more by what the machine does beside the training thread.
  double backward = 1;
};

/// How the passes of recorded steps are read: what tells a backward from its wait for other ranks.
struct PassReading {
  /// Which runs have the passes.
  enum class Runs {
    Plain,        ///< Those without buckets, since recording buckets costs time.
    WithBuckets,  ///< Those with buckets.
    All,
  };
  Runs runs = Runs::All;
  bool whole_steps = false;  ///< Nothing tells it: the wait stays in the backward.
  bool host_loads =
      false;         ///< Loading is the host's own time, which it spends ahead of the device.
  double cores = 0;  ///< Cores that the ranks shared, as a rate; 0: each rank had its own.
  ProcessorRatios over_processor;

  [[nodiscard]] bool by_processor_time() const { return runs == Runs::Plain || cores > 0; }
};

/// Chooses the reading for these runs, which are at least one.
[[nodiscard]] PassReading pass_reading(std::span<const RecordedRun> runs,
                                       RecordedForm form,
                                       bool host_loads);

/// What is known of the steady steps, the passes in the same order.
struct Observations {
  std::vector<PassObservation> data;
  std::vector<PassObservation> forward;
  std::vector<PassObservation> backward;
  std::vector<double> optimizer;  ///< [as forward]
  std::vector<int> ranks;         ///< [as forward]
  std::vector<PassWaits> waits;   ///< [as forward] Where the device waited for its host.
  int steps = 0;                  ///< Of all runs, one behind the other.
};

/// Reads the steady steps. A forward costs its wall time, where cores are shared its processor
/// time: what it would take on a core of its own. Raises InputError: a run has other batches than
/// its plan, or a backward that cannot be told from waiting; too few steps for a fit. `waits`: as
/// find_waits() has them for the same runs.
[[nodiscard]] Observations observed_passes(std::span<const RecordedRun> runs,
                                           const PassReading& reading,
                                           const std::map<RunRow, PassWaits>& waits);

/// Returns what the steps of several ranks leave exposed, for runs that are read without buckets;
/// of other runs nothing.
[[nodiscard]] std::vector<RecordedExposure> observed_exposures(std::span<const RecordedRun> runs,
                                                               const PassReading& reading);

}  // namespace stepsim
