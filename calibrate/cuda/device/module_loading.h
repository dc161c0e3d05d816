#pragma once

#include <cstdlib>

namespace stepsim::cuda {

/// Has CUDA load all kernels when the process first uses a device, unless the user has chosen
/// otherwise (CUDA_MODULE_LOADING). By default a kernel is loaded at its first launch, which waits
/// for work that is queued: behind a held stream until the hold expires. Called before the first
/// call of CUDA.
inline void load_kernels_at_start() {
  [[maybe_unused]] static const int kOnce = ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

}  // namespace stepsim::cuda
