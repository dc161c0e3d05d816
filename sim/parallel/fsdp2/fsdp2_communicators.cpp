#include <utility>
#include <vector>

#include "sim/parallel/fsdp2/fsdp2_program.h"

namespace stepsim {

std::vector<Communicator> fsdp2_communicators(const Fsdp2Options& options,
                                              int slice_ranks,
                                              bool gloo) {
  Communicator like;
  if (gloo) {
    like.workers = 2;
    like.shares_links = true;
  }
  const int shards = options.mesh.shards;
  const int replicas = replicas_of(options);
  std::vector<Communicator> communicators = {like};
  const auto add_groups = [&](int ranks, int stride, int count) {
    for (int group = 0; group < count; ++group) {
      Communicator one = like;
      const int first = group / stride * ranks * stride + group % stride;
      for (int i = 0; i < ranks; ++i) {
        one.ranks.push_back(first + i * stride);
      }
      communicators.push_back(std::move(one));
    }
  };
  add_groups(shards, 1, replicas);
  if (options.separate_reduce_group) {
    add_groups(shards, 1, replicas);
  }
  if (options.mesh.replicates) {
    add_groups(replicas, shards, shards);
  }
  if (slice_ranks > 0) {
    add_groups(slice_ranks, 1, shards * replicas / slice_ranks);
  }
  return communicators;
}

}  // namespace stepsim
