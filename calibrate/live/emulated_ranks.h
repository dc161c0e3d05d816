#pragma once

#include <functional>
#include <span>
#include <vector>

#include "calibrate/measure/backend.h"
#include "costmodel/records/plan_file.h"

namespace stepsim {

/// Seconds of an all-reduce of this many bytes, from the last arrival on.
using TransferTime = std::function<double(std::int64_t bytes)>;

/// [rank][bucket] What a stand-in has to do on each rank, given when the ranks start their steps
/// and when each launches its buckets in them (seconds; steps run alone).
///
/// A collective begins when every rank has launched it and the one before has ended, and ends on
/// all ranks together; on a rank it is resident from its own launch, or the end of the one before,
/// on.
[[nodiscard]] std::vector<std::vector<StandIn>> schedule_stand_ins(
    std::span<const double> starts,
    std::span<const TrainedStep> alone,
    const TransferTime& transfer);

/// Several ranks on one device: every step runs twice for each rank in turn, first without
/// collectives, to see when its buckets are ready, then with a stand-in kernel in the place of each
/// collective, resident from the rank's launch to the common end. What is not real: the transfer
/// and its wires. What is: the compute, the skew between ranks and what residence costs compute.
class EmulatedRanks {
 public:
  EmulatedRanks(Backend& backend, int ranks, TransferTime transfer);

  /// One step of all ranks. start and end are on one clock of the emulated ranks, which begins at
  /// 0. Raises InputError: the backend cannot emulate.
  [[nodiscard]] std::vector<TrainedStep> train_step(std::span<const MicroBatch* const> batches);

 private:
  Backend& backend_;
  TransferTime transfer_;
  std::vector<double> clocks_;  ///< [rank] End of its step before.
};

}  // namespace stepsim
