#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "calibrate/cuda/attention/cudnn_plan.h"
#include "calibrate/cuda/attention/sdpa_graph.h"

namespace stepsim::cuda {

/// One direction's compiled kernels, with the descriptors they were made of.
struct SdpaPass {
  CudnnGraph graph;
  CudnnEngine engine;
  CudnnDescriptor plan;
  std::vector<std::pair<std::int64_t, GraphRole>> bound;  ///< Tensors that the caller binds.
};

struct SdpaPasses {
  SdpaPass forward;
  SdpaPass backward;
};

/// The shape whose kernels serve `shape`. The longest packed sequence is rounded up to 64 tokens,
/// so that batches share kernels: packed arrays do not depend on it, and the number of tiles of 64
/// or 128 rows stays the same.
[[nodiscard]] SdpaShape compiled_shape(SdpaShape shape);

/// Compiles both directions. Raises EnvironmentFault, naming the shape: cuDNN has no kernel for it,
/// or could not compile one.
[[nodiscard]] SdpaPasses sdpa_passes(const SdpaShape& shape, const CudnnDescriptor& device);

}  // namespace stepsim::cuda
