#include "sim/predict/run/unit_host_times.h"

#include <algorithm>

#include "sim/engine/time_limit.h"

namespace stepsim {

UnitHost unit_host_of(const Scenario& scenario, const Profile& profile, bool on_cpu) {
  double slowed = profile.noise.crowded.slowed;
  if (const double cores = scenario.cores.value_or(profile.cores); on_cpu && cores > 0) {
    slowed *= std::max(1.0, scenario.placement.fullest() / cores);
  }
  const UnitHostTimes times = profile.unit_host.value_or(usual_unit_times(on_cpu));
  UnitHost host;
  host.forward = bounded_duration(times.forward);
  host.forward_tensor = bounded_duration(times.forward_tensor);
  host.backward = bounded_duration(times.backward);
  host.backward_tensor = bounded_duration(times.backward_tensor);
  host.optimizer_tensor = bounded_duration(times.optimizer_tensor);
  host.byte_seconds = on_cpu ? times.byte * slowed : 0;
  for (Duration* time : {&host.forward,
                         &host.forward_tensor,
                         &host.backward,
                         &host.backward_tensor,
                         &host.optimizer_tensor}) {
    *time = bounded_duration(to_seconds(*time) * slowed);
  }
  return host;
}

}  // namespace stepsim
