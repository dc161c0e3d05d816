#include "calibrate/cli/backend.h"
#include "calibrate/cpu/cpu_backend.h"
#include "costmodel/base/input_error.h"

namespace stepsim {

BackendFactory cpu_backend_factory() {
  return [](const RankContext& context,
            const TransformerConfig& /*model*/,
            const std::vector<std::vector<int>>& /*buckets*/) -> std::unique_ptr<Backend> {
    if (context.nodes() > 1) {
      throw InputError("the CPU backend works on one machine; its ranks are on " +
                       std::to_string(context.nodes()));
    }
    return std::make_unique<CpuBackend>(context.rank(), context.ranks(), context.folder());
  };
}

}  // namespace stepsim
