#pragma once

#include "calibrate/cuda/cuda_backend.h"
#include "calibrate/ranks/rank_processes.h"

namespace stepsim::cuda {

/// The place of a rank that a command has started: the device of its number on the host, counted
/// from `first_device` on, and the name of the ranks' group, which rank 0 makes.
/// Raises EnvironmentFault: no CUDA device; InputError: fewer devices than ranks on this host.
[[nodiscard]] RankPlace rank_place(const RankContext& context, int first_device);

}  // namespace stepsim::cuda
