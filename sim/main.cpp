#include <string>
#include <vector>

#include "sim/cli/cli.h"
#include "sim/mpi/join_peers.h"

int main(int argc, char** argv) {
  return stepsim::run_stepsim(std::vector<std::string>(argv + 1, argv + argc), stepsim::join_peers);
}
