#include "tests/source_root.h"

#include <cstdlib>

namespace stepsim::test {

std::string source_root() {
  return STEPSIM_SOURCE_ROOT;
}

std::string data_folder() {
  const char* folder = std::getenv("STEPSIM_DATA");
  return folder != nullptr ? folder : source_root() + "/../shared/data";
}

}  // namespace stepsim::test
