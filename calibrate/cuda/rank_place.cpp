#include "calibrate/cuda/rank_place.h"

#include <fmt/core.h>

#include "calibrate/cuda/device/devices.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

int device_of(const RankContext& context, int first_device) {
  const CudaInventory inventory = cuda_inventory();
  if (inventory.devices.empty()) {
    throw EnvironmentFault("no CUDA device to measure on: " + inventory.problem +
                           "; stepcal devices lists what there is");
  }
  const int device = first_device + context.local_rank();
  const auto count = static_cast<int>(inventory.devices.size());
  if (device >= count) {
    throw InputError(
        "rank {} needs CUDA device {}, and this machine has {}: measure with --ranks {}",
        context.rank(),
        device,
        count == 1 ? "device 0 only" : fmt::format("devices 0 to {}", count - 1),
        count);
  }
  return device;
}

}  // namespace

RankPlace rank_place(const RankContext& context, int first_device) {
  RankPlace place;
  place.device = device_of(context, first_device);
  place.rank = context.rank();
  place.ranks = context.ranks();
  if (context.ranks() > 1) {
    place.unique_id = context.broadcast(context.rank() == 0 ? nccl_unique_id() : "");
  }
  return place;
}

}  // namespace stepsim::cuda
