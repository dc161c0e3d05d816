#include <string>
#include <vector>

#include "calibrate/cli/cli.h"
#include "costmodel/base/heap.h"

int main(int argc, char** argv) {
  stepsim::keep_freed_memory();
  return stepsim::run_stepcal(std::vector<std::string>(argv + 1, argv + argc));
}
