#pragma once

#include <cuda_runtime_api.h>

namespace stepsim::cuda {

/// Raises EnvironmentFault, naming the call and CUDA's reason, unless `status` is success.
void check_cuda(cudaError_t status, const char* call);

}  // namespace stepsim::cuda
