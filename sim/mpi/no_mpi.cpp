#include "costmodel/base/input_error.h"
#include "sim/mpi/join_peers.h"
#include "sim/mpi/launched_processes.h"

namespace stepsim {

std::unique_ptr<Peers> join_peers() {
  if (const LaunchedProcesses launched = launched_processes(); launched.count > 1) {
    throw EnvironmentFault(
        "{} has started {} processes, and each would compute and write everything: this build has "
        "no MPI. Build it with -Dmpi=enabled, or let each process compute a part: "
        "--shard auto --resume 'part-{{shard}}.jsonl', then stepsim merge",
        launched.launcher,
        launched.count);
  }
  return nullptr;
}

}  // namespace stepsim
