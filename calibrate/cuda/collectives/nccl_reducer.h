#pragma once

#include "calibrate/cuda/collectives/nccl_group.h"
#include "calibrate/cuda/collectives/stream_reducer.h"

namespace stepsim::cuda {

/// All-reduces buckets over the ranks by NCCL.
class NcclReducer : public StreamReducer {
 public:
  NcclReducer(NcclGroup& group, const Stream& compute) : StreamReducer(compute), group_(group) {}

 private:
  void run(std::size_t /*bucket*/, Array data, std::int64_t elements) override {
    group_.all_reduce(stream(), data, elements);
  }

  NcclGroup& group_;
};

}  // namespace stepsim::cuda
