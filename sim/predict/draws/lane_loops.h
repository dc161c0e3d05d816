#pragma once

#include <cstddef>

namespace stepsim {

// Loops over lanes, compiled for wide vectors where the processor has them. Each array has `lanes`
// elements.

/// Sets out to the later of device + by_device and host + by_host, in each lane.
void go_on(const double* device,
           const double* host,
           const double* by_device,
           const double* by_host,
           std::size_t lanes,
           double* out);

/// Sets out to slowness * (load * model + ddp), in each lane.
void work_times(const double* slowness,
                const double* load,
                const double* model,
                const double* ddp,
                std::size_t lanes,
                double* out);

/// Works on a device from when the host has launched the first op: device = the later of itself and
/// host + launched * launch, plus work.
void work_on(const double* host,
             double launched,
             const double* launch,
             const double* work,
             std::size_t lanes,
             double* device);

/// Works on a device where only the ops from a later one on can be critical.
void work_later_on(const double* host,
                   double launched,
                   const double* launch,
                   const double* critical,
                   std::size_t lanes,
                   double* device);

/// Moves the latest launches of all buckets behind those of a rank: [bucket][lane].
void add_launches(const double* device,
                  const double* host,
                  const double* by_device,
                  const double* by_host,
                  std::size_t buckets,
                  std::size_t lanes,
                  double* latest);

}  // namespace stepsim
