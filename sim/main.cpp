#include <string>
#include <vector>

#include "sim/cli/cli.h"

int main(int argc, char** argv) {
  return stepsim::run_stepsim(std::vector<std::string>(argv + 1, argv + argc));
}
