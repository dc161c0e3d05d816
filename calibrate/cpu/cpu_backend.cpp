#include "calibrate/cpu/cpu_backend.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "calibrate/measure/clock.h"
#include "calibrate/measure/processor.h"

namespace stepsim {

std::vector<CollectiveKind> CpuBackend::collectives() const {
  return {CollectiveKind::AllReduce, CollectiveKind::ReduceScatter, CollectiveKind::AllGather};
}

CollectiveTimes CpuBackend::time_collective(CollectiveKind kind, Bytes bytes, int calls) {
  const auto floats = static_cast<std::size_t>(bytes.value()) / sizeof(float);
  const auto ranks = static_cast<std::size_t>(group_.ranks());
  const std::size_t count = (floats + ranks - 1) / ranks * ranks;
  // Zeros stay zeros when they are summed again and again.
  message_.resize(std::max(message_.size(), count));
  CollectiveTimes times;
  times.arrival = clock_seconds();
  for (int call = 0; call < calls; ++call) {
    switch (kind) {
      case CollectiveKind::ReduceScatter:
        group_.reduce_scatter(message_.data(), count);
        break;
      case CollectiveKind::AllGather:
        group_.all_gather(message_.data(), count);
        break;
      default:
        group_.all_reduce(message_.data(), count);
        break;
    }
  }
  times.end = clock_seconds();
  return times;
}

Json CpuBackend::description() const {
  return {{"backend", "cpu"},
          {"device", processor_name()},
          {"gloo", gloo_version()},
          {"collectives", "gloo"}};
}

}  // namespace stepsim
