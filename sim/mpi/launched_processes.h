#pragma once

#include <string>

namespace stepsim {

/// What a launcher says in the environment that it leaves to the processes it starts.
struct LaunchedProcesses {
  std::string launcher;  ///< "mpirun", "mpiexec", "srun"; empty: none has started this process.
  int count = 1;
};

/// Reads what Open MPI, MPICH and Intel MPI, or srun leave. What is no number counts as 1.
[[nodiscard]] LaunchedProcesses launched_processes();

}  // namespace stepsim
