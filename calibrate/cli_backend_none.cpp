// In place of cli_backend_cpu.cpp and cli_live.cpp when gloo is not there.
#include "calibrate/cli.h"
#include "calibrate/cli_backend.h"
#include "costmodel/input_error.h"

namespace stepsim {
namespace {

[[noreturn]] void fail() {
  throw EnvironmentFault(
      "this stepcal was built without the CPU backend: install gloo (apt install libgloo-dev), "
      "then "
      "meson setup --reconfigure and build again");
}

}  // namespace

BackendFactory cpu_backend_factory() {
  fail();
}

int live_command(const std::vector<std::string>& /*arguments*/) {
  fail();
}

}  // namespace stepsim
