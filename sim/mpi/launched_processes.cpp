#include "sim/mpi/launched_processes.h"

#include <cstdlib>
#include <utility>

#include "costmodel/base/parse_number.h"

namespace stepsim {

LaunchedProcesses launched_processes() {
  for (const auto& [launcher, variable] : {std::pair("mpirun", "OMPI_COMM_WORLD_SIZE"),
                                           std::pair("mpiexec", "PMI_SIZE"),
                                           std::pair("srun", "SLURM_STEP_NUM_TASKS")}) {
    if (const char* const value = std::getenv(variable); value != nullptr) {
      return {launcher, parse_number<int>(value).value_or(1)};
    }
  }
  return {};
}

}  // namespace stepsim
