#pragma once

#include <cstdint>
#include <vector>

#include "costmodel/base/units.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// Worker processes that load batches ahead, one set per rank, as those of torch's DataLoader do:
/// worker i modulo `workers` makes batch i, and is asked for it when batch i - workers * prefetch
/// is fetched. Times past kTimeLimit raise InputError.
class Loader {
 public:
  Loader(const LoaderOptions& options, int ranks);

  [[nodiscard]] bool has_workers() const { return options_.workers > 0; }

  /// The time that a rank takes to make batch `index`, with the planning that falls on it.
  [[nodiscard]] Duration cost(int rank, std::int64_t index, std::int64_t padded_tokens) const;
  /// When the next batch of this rank is ready, given what it takes to make.
  [[nodiscard]] SimTime ready(int rank, Duration cost);
  /// The training process took the oldest batch that it had not taken yet.
  void fetched(int rank, SimTime time);

 private:
  struct Rank {
    std::vector<SimTime> worker_free;
    std::vector<SimTime> fetch_times;
    std::int64_t made = 0;
  };

  LoaderOptions options_;
  std::vector<Rank> ranks_;
};

}  // namespace stepsim
