#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/live/emulated_ranks.h"
#include "calibrate/measure/measure.h"
#include "costmodel/records/plan_file.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

struct LiveOptions {
  std::vector<std::string> plans;    ///< The plans' files, for messages; may be empty.
  std::vector<std::string> outputs;  ///< Where the caller writes the records.
  int block = 4;    ///< Steps of one plan in a row, before the next plan takes its turn.
  int repeats = 1;  ///< Passes over all plans.
  /// When not empty, one process plays all ranks in turn (EmulatedRanks), with these transfer
  /// times.
  TransferTime emulated_transfer = nullptr;
  JsonValue emulation;                ///< What the records say about the emulation.
  LaunchedGroup* launched = nullptr;  ///< Null when the ranks are forked on this machine.
  /// Gets the records so far, about every 10 s of a run and between its rounds, so that a caller
  /// can write them before the end. May be empty.
  std::function<void(const std::vector<RunRecord>&)> keep = nullptr;
};

/// How far a live run is.
struct LiveProgress {
  int steps_done = 0;  ///< Counts all plans and repeats together, as does the total.
  int steps_total = 0;
};

/// Executes plans as real DDP steps: one process a rank, each with a backend of `factory`.
///
/// The plans take turns, `block` steps each, in an order that rotates, so that the drift of the
/// machine is the same for all of them. After every round the calibration's sentinel step is timed
/// on all ranks. Inside a block nothing but the all-reduces keeps the ranks together. Before the
/// first repeat every plan runs up to four steps that are not recorded. The very first step of the
/// processes uses the initial buckets, all others use the rebuilt ones.
///
/// `records` is set to one record for each plan, in order, with its steps sorted by repeat, step
/// and rank. When an error or Interrupted is thrown, the records hold every step that all ranks
/// have finished and reported. With a launcher, only rank 0 gets records.
///
/// Raises InputError (plans of different models or ranks, several micro-batches in a step),
/// EnvironmentFault, Interrupted.
void run_live(const std::vector<Plan>& plans,
              const BackendFactory& factory,
              const LiveOptions& options,
              const std::function<void(const LiveProgress&)>& on_progress,
              std::vector<RunRecord>& records);

}  // namespace stepsim
