#include "sim/predict/unit_host_times.h"

namespace stepsim {

UnitHost unit_host_of(const Profile& profile, bool on_cpu) {
  UnitHost host = usual_unit_host(on_cpu);
  if (const auto& measured = profile.unit_host) {
    host.forward = bounded_duration(measured->forward);
    host.forward_tensor = bounded_duration(measured->forward_tensor);
    host.backward = bounded_duration(measured->backward);
    host.backward_tensor = bounded_duration(measured->backward_tensor);
    host.optimizer_tensor = bounded_duration(measured->optimizer_tensor);
  }
  for (Duration* time : {&host.forward,
                         &host.forward_tensor,
                         &host.backward,
                         &host.backward_tensor,
                         &host.optimizer_tensor}) {
    *time = bounded_duration(to_seconds(*time) * profile.noise.crowded.slowed);
  }
  return host;
}

}  // namespace stepsim
