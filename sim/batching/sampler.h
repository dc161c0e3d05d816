#pragma once

#include <cstdint>
#include <vector>

#include "sim/batching/random.h"

namespace stepsim {

/// Order of the samples and their split over ranks.
struct SamplerSpec {
  enum class Kind {
    Python,      ///< random.Random(seed).shuffle of 0..N-1, rank r takes order[r::ranks].
    Distributed  ///< torch DistributedSampler: randperm(seed + epoch), padded with its own head.
  };
  Kind kind = Kind::Distributed;
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool drop_last = false;
};

/// One rank's samples of an epoch, and the generator that a policy goes on drawing from.
struct RankOrder {
  std::vector<std::int64_t> samples;
  PythonRandom random;  ///< Python: continues after the shuffle. Distributed: Random(seed + epoch).
};

[[nodiscard]] RankOrder rank_order(const SamplerSpec& spec, std::int64_t sample_count, int ranks,
                                   int rank, int epoch);

}  // namespace stepsim
