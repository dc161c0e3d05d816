#include <chrono>

#include "sim/parallel/step_work.h"

namespace stepsim {

UnitHost usual_unit_host(bool on_cpu) {
  using std::chrono::microseconds;
  UnitHost host;
  host.forward = microseconds(870);
  host.forward_tensor = microseconds(25);
  host.backward = microseconds(1000);
  host.backward_tensor = microseconds(45);
  host.optimizer_tensor = microseconds(on_cpu ? 500 : 48);
  return host;
}

}  // namespace stepsim
