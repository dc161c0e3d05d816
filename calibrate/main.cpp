#include <string>
#include <vector>

#include "calibrate/cli/cli.h"

int main(int argc, char** argv) {
  return stepsim::run_stepcal(std::vector<std::string>(argv + 1, argv + argc));
}
