#pragma once

#include <memory>

#include "sim/points/peers.h"

namespace stepsim {

/// Connects to the processes that mpirun or srun started with this one, by MPI. Null where this
/// process is alone. Call it once; MPI ends with what it returns.
///
/// Raises EnvironmentFault: there are several processes, and this build has no MPI, or MPI does not
/// know the others.
[[nodiscard]] std::unique_ptr<Peers> join_peers();

}  // namespace stepsim
