#include "calibrate/cli/backend.h"
#include "calibrate/cuda/rank_place.h"

namespace stepsim {

BackendFactory cuda_backend_factory(int first_device, const StandInShape& stand_in) {
  return [first_device, stand_in](
             const RankContext& context,
             const TransformerConfig& model,
             const std::vector<std::vector<int>>& buckets) -> std::unique_ptr<Backend> {
    cuda::RankPlace place = cuda::rank_place(context, first_device);
    place.stand_in = stand_in;
    return std::make_unique<cuda::CudaBackend>(model, buckets, place);
  };
}

}  // namespace stepsim
