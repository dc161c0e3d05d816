#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace stepsim {

/// What a launcher such as mpirun, which starts one process a rank, tells each of them.
struct Launch {
  std::string launcher;  ///< "torchrun", "mpirun", "mpiexec", "srun"
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;   ///< Counts the ranks of this machine.
  std::string address;  ///< The name or number of rank 0's machine.
  int port = 0;         ///< The port on which rank 0 waits for the others.
  std::string secret;   ///< What all ranks of this job know; rank 0 admits nobody else.
};

/// Gives the value of an environment variable; null when it is not set.
using Environment = std::function<const char*(const char* name)>;

/// Reads the environment that torchrun, Open MPI, MPICH and Intel MPI, or srun leave. They are
/// tried in this order, since one may have started the other. The result is empty when there is no
/// launcher, or when it has started one rank only.
///
/// The address is MASTER_ADDR; without it, it is this machine when all ranks are here, or the first
/// machine of the srun step. The port is STEPSIM_PORT, else MASTER_PORT + 1 (torchrun itself
/// listens on MASTER_PORT), else 29613. The secret is STEPSIM_SECRET, else what the launcher calls
/// the job, which keeps the ranks of two jobs apart but is easily guessed. Raises InputError when
/// variables are missing, are no numbers, or contradict each other.
[[nodiscard]] std::optional<Launch> read_launch(const Environment& environment = ::getenv);

}  // namespace stepsim
