#pragma once

#include <cstdint>
#include <vector>

#include "sim/batching/random/random.h"

namespace stepsim {

/// How the samples are ordered and split over the ranks.
struct SamplerSpec {
  enum class Kind {
    Distributed,  ///< torch DistributedSampler: randperm(seed + epoch), padded with its own head.
    Python        ///< random.Random(seed).shuffle of 0..N-1, rank r takes order[r::ranks].
  };
  Kind kind = Kind::Distributed;
  bool shuffle = true;
  std::uint64_t seed = 0;
  /// The sampler leaves out the tail that does not divide over the ranks, and policies drop the
  /// last batch of a rank when it is not full.
  bool drop_last = false;
  /// A rank that has used up its epoch goes on with the batches of the next epoch, as with
  /// DistributedSampler.set_epoch. Otherwise it starts the same batches again.
  bool set_epoch = false;
};

/// Makes an order divide over the ranks: repeats its own head (`pad`, the whole of it if need be),
/// else cuts its tail off.
void fit_to_ranks(std::vector<std::int64_t>& order, std::size_t ranks, bool pad);

/// One rank's samples of an epoch, and the generator that a policy goes on drawing from.
struct RankOrder {
  std::vector<std::int64_t> samples;
  PythonRandom random;  ///< Python: continues after the shuffle. Distributed: Random(seed + epoch).
};

/// [rank] The samples of each rank.
///
/// Python draws epoch e from Random(seed + e); its ranks differ by one sample when ranks do not
/// divide the samples, unless drop_last cuts the tail. Distributed repeats the head of the order
/// until ranks divide it (drop_last: cuts the tail), so its ranks are always equal.
/// Without shuffle the order is 0..N-1.
/// Raises:
///     InputError: ranks < 1, epoch < 0, or no samples.
[[nodiscard]] std::vector<RankOrder> rank_orders(const SamplerSpec& spec,
                                                 std::int64_t sample_count,
                                                 int ranks,
                                                 int epoch);

/// The samples of one rank, 0 <= rank < ranks (else std::out_of_range).
[[nodiscard]] RankOrder rank_order(
    const SamplerSpec& spec, std::int64_t sample_count, int ranks, int rank, int epoch);

}  // namespace stepsim
