// In place of calibrate/cli/backend_cuda.cpp: a probe of overlaps that an emulated device can
// carry.
#include "calibrate/cli/backend.h"
#include "calibrate/cuda/rank_place.h"

namespace stepsim {

BackendFactory cuda_backend_factory(int first_device) {
  return [first_device](const RankContext& context,
                        const TransformerConfig& model,
                        const std::vector<std::vector<int>>& buckets) -> std::unique_ptr<Backend> {
    cuda::RankPlace place = cuda::rank_place(context, first_device);
    place.overlap.channels = {2};
    place.overlap.tokens = 32;
    place.overlap.copy_elements = 4096;
    place.overlap.repetitions = 1;
    return std::make_unique<cuda::CudaBackend>(model, buckets, place);
  };
}

}  // namespace stepsim
