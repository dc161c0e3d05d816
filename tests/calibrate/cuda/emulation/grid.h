#pragma once

#include <functional>

/// Runs the threads of a grid on the calling thread: block after block, the threads of a block as
/// fibers that change at barriers.
namespace stepsim::cuda::emulated {

/// Calls `kernel` once for every thread of every block, with threadIdx, blockIdx, blockDim and
/// gridDim set. Raises std::logic_error when the threads of a block wait for each other for ever,
/// or a warp's shuffle lacks some of its lanes.
void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& kernel);

/// Called by a kernel's thread: goes on once all threads of the block that have not ended came.
void wait_for_block();

/// Called by a kernel's thread: leaves eight bytes for the other lanes, waits until all 32 have,
/// and returns what `lane` left.
unsigned long long exchange(unsigned long long value, unsigned lane);

}  // namespace stepsim::cuda::emulated
