// In place of cli_backend_cpu.cpp when gloo is not there.
#include "calibrate/cli/backend.h"
#include "costmodel/base/input_error.h"

namespace stepsim {

BackendFactory cpu_backend_factory() {
  throw EnvironmentFault(
      "this stepcal was built without the CPU backend: install gloo (apt install libgloo-dev), "
      "then meson setup --reconfigure and build again");
}

}  // namespace stepsim
