#pragma once

#include <functional>
#include <span>
#include <vector>

#include "calibrate/measure/backend.h"
#include "costmodel/records/plan_file.h"

namespace stepsim {

/// Gives the seconds of an all-reduce of this many bytes, counted from the last arrival.
using TransferTime = std::function<double(std::int64_t bytes)>;

/// Computes what the stand-in of each collective has to do, by rank and bucket. `starts` says when
/// the ranks start their steps, and `alone` when each launches its buckets in a step without
/// collectives, both in seconds.
///
/// A collective begins when every rank has launched it and the one before has ended, and it ends on
/// all ranks together. On a rank it occupies the device from its own launch on, or from the end of
/// the one before.
[[nodiscard]] std::vector<std::vector<StandIn>> schedule_stand_ins(
    std::span<const double> starts,
    std::span<const TrainedStep> alone,
    const TransferTime& transfer);

/// Plays several ranks on one device. Every step runs twice for each rank in turn: first without
/// collectives, to see when its buckets are ready, then with a stand-in kernel in the place of each
/// collective, which occupies the device from the rank's launch to the common end. The compute, the
/// skew between ranks and the slowdown of compute beside a collective are real; the transfer over
/// the wires is not.
class EmulatedRanks {
 public:
  EmulatedRanks(Backend& backend, int ranks, TransferTime transfer);

  /// Runs one step of all ranks. `start` and `end` are on the emulated ranks' common clock, which
  /// begins at 0. Raises InputError when the backend cannot emulate.
  [[nodiscard]] std::vector<TrainedStep> train_step(std::span<const MicroBatch* const> batches);

 private:
  Backend& backend_;
  TransferTime transfer_;
  std::vector<double> clocks_;  ///< [rank] The end of its previous step.
};

}  // namespace stepsim
