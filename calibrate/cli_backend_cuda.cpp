#include <fmt/core.h>

#include "calibrate/cli_backend.h"
#include "calibrate/cuda/cuda_backend.h"
#include "calibrate/cuda/devices.h"
#include "costmodel/input_error.h"

namespace stepsim {
namespace {

/// The device of a rank; there must be one for each of the host.
int device_of(const RankContext& context, int first_device) {
  const CudaInventory inventory = cuda_inventory();
  if (inventory.devices.empty()) {
    throw EnvironmentFault("no CUDA device to measure on: " + inventory.problem +
                           "; stepcal devices lists what there is");
  }
  const int device = first_device + context.local_rank();
  const auto count = static_cast<int>(inventory.devices.size());
  if (device >= count) {
    throw InputError(fmt::format(
        "rank {} needs CUDA device {}, and this machine has {}: measure kernels with --ranks {}, "
        "or train with --emulate-ranks",
        context.rank(),
        device,
        count == 1 ? "device 0 only" : fmt::format("devices 0 to {}", count - 1),
        count));
  }
  return device;
}

}  // namespace

BackendFactory cuda_backend_factory(int first_device, const StandInShape& stand_in) {
  return [first_device, stand_in](
             const RankContext& context,
             const TransformerConfig& model,
             const std::vector<std::vector<int>>& buckets) -> std::unique_ptr<Backend> {
    cuda::RankPlace place;
    place.device = device_of(context, first_device);
    place.rank = context.rank();
    place.ranks = context.ranks();
    place.stand_in = stand_in;
    place.unique_id = context.broadcast(context.rank() == 0 ? cuda::nccl_unique_id() : "");
    return std::make_unique<cuda::CudaBackend>(model, buckets, place);
  };
}

}  // namespace stepsim
