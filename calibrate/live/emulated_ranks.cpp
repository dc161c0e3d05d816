#include "calibrate/live/emulated_ranks.h"

#include <algorithm>
#include <utility>

namespace stepsim {

std::vector<std::vector<StandIn>> schedule_stand_ins(std::span<const double> starts,
                                                     std::span<const TrainedStep> alone,
                                                     const TransferTime& transfer) {
  std::vector<std::vector<StandIn>> stand_ins(alone.size());
  double free = 0;  // When the communicator is.
  for (std::size_t bucket = 0; bucket < alone[0].buckets.size(); ++bucket) {
    const auto launch = [&](std::size_t rank) {
      return starts[rank] + alone[rank].buckets[bucket].launch;
    };
    double begin = free;
    for (std::size_t rank = 0; rank < alone.size(); ++rank) {
      begin = std::max(begin, launch(rank));
    }
    const double seconds = transfer(alone[0].buckets[bucket].bytes);
    for (std::size_t rank = 0; rank < alone.size(); ++rank) {
      stand_ins[rank].push_back({begin - std::max(free, launch(rank)), seconds});
    }
    free = begin + seconds;
  }
  return stand_ins;
}

EmulatedRanks::EmulatedRanks(Backend& backend, int ranks, TransferTime transfer)
    : backend_(backend),
      transfer_(std::move(transfer)),
      clocks_(static_cast<std::size_t>(ranks), 0.0) {}

std::vector<TrainedStep> EmulatedRanks::train_step(std::span<const MicroBatch* const> batches) {
  const auto run = [&](std::size_t rank, std::span<const StandIn> collectives) {
    const MicroBatch& batch = *batches[rank];
    return backend_.emulate_step(
        batch.attended(), batch.loss_scale, batch.padded_length, collectives);
  };
  std::vector<TrainedStep> alone;
  for (std::size_t rank = 0; rank < batches.size(); ++rank) {
    alone.push_back(run(rank, {}));
  }
  const auto stand_ins = schedule_stand_ins(clocks_, alone, transfer_);
  std::vector<TrainedStep> steps;
  for (std::size_t rank = 0; rank < batches.size(); ++rank) {
    TrainedStep step = run(rank, stand_ins[rank]);
    const double seconds = step.end - step.start;
    step.start = clocks_[rank];
    step.end = step.start + seconds;
    clocks_[rank] = step.end;
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace stepsim
