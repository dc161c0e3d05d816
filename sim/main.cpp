#include <string>
#include <vector>

#include "costmodel/base/heap.h"
#include "sim/cli/cli.h"
#include "sim/fit_records.h"
#include "sim/mpi/join_peers.h"

int main(int argc, char** argv) {
  stepsim::keep_freed_memory();
  return stepsim::run_stepsim(
      std::vector<std::string>(argv + 1, argv + argc), stepsim::join_peers, stepsim::fit_records);
}
