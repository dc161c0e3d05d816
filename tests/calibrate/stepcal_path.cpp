#include "tests/calibrate/stepcal_path.h"

namespace stepsim::test {

std::string stepcal_path() {
  return STEPCAL;
}

}  // namespace stepsim::test
