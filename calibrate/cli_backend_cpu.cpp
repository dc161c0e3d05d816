#include "calibrate/cli_backend.h"
#include "calibrate/cpu/cpu_backend.h"

namespace stepsim {

BackendFactory cpu_backend_factory() {
  return [](const RankContext& context,
            const TransformerConfig& model,
            const std::vector<std::vector<int>>& buckets) -> std::unique_ptr<Backend> {
    return std::make_unique<CpuBackend>(
        model, buckets, context.rank(), context.ranks(), context.folder());
  };
}

}  // namespace stepsim
