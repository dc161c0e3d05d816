#include "calibrate/cli/backend.h"
#include "calibrate/cuda/rank_place.h"

namespace stepsim {

BackendFactory cuda_backend_factory(int first_device) {
  return [first_device](const RankContext& context,
                        const TransformerConfig& model,
                        const std::vector<std::vector<int>>& buckets) -> std::unique_ptr<Backend> {
    return std::make_unique<cuda::CudaBackend>(
        model, buckets, cuda::rank_place(context, first_device));
  };
}

}  // namespace stepsim
