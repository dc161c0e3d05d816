#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace stepsim {

/// What a launcher that starts one process a rank tells each of them.
struct Launch {
  std::string launcher;  ///< "torchrun", "mpirun", "mpiexec", "srun"
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;   ///< Among the ranks of this machine.
  std::string address;  ///< Of rank 0's machine: a name or a number.
  int port = 0;         ///< Where rank 0 waits for the others.
};

using Environment = std::function<const char*(const char* name)>;  ///< Null: not set.

/// Reads the environment that torchrun, Open MPI, MPICH and Intel MPI, or srun leave, in this
/// order: one may have started the other. None when there is no launcher, or it has started one
/// rank only. The address is MASTER_ADDR, without it this machine (when all ranks are on it) or the
/// first of the srun step; the port is STEPSIM_PORT, else MASTER_PORT + 1 (torchrun listens on
/// MASTER_PORT itself), else 29613. Raises InputError: variables missing, no numbers, or in
/// contradiction.
[[nodiscard]] std::optional<Launch> read_launch(const Environment& environment = ::getenv);

}  // namespace stepsim
