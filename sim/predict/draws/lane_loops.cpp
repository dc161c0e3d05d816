#include "sim/predict/draws/lane_loops.h"

#include <cstdint>

#include "costmodel/base/target_clones.h"

namespace stepsim {
namespace {

constexpr double kWhole = 0x1p52;  // From here on, doubles are whole.
constexpr double kPerSecond = 1e9;

/// Rounded as by to_duration(), where it is not negative and below kWhole. GCC makes no vectors of
/// the simpler x ? nearest + 1 : nearest, nor of a sum of conditions.
inline double rounded(double nanoseconds) {
  const double nearest = (nanoseconds + kWhole) - kWhole;  // The even one of two that are as near.
  return nearest + (nanoseconds - nearest == 0.5 ? 1.0 : 0.0);
}

inline std::int64_t is_beyond(double nanoseconds) {
  return (nanoseconds >= 0 ? 0 : 1) | (nanoseconds < kWhole ? 0 : 1);
}

}  // namespace

STEPSIM_TARGET_CLONES void go_on(const double* device,
                                 const double* host,
                                 const double* by_device,
                                 const double* by_host,
                                 std::size_t lanes,
                                 double* out) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double a = device[l] + by_device[l];
    const double b = host[l] + by_host[l];
    out[l] = a > b ? a : b;
  }
}

STEPSIM_TARGET_CLONES void work_times(const double* slowness,
                                      const double* load,
                                      const double* model,
                                      const double* ddp,
                                      std::size_t lanes,
                                      double* out) {
  for (std::size_t l = 0; l < lanes; ++l) {
    out[l] = slowness[l] * (load[l] * model[l] + ddp[l]);
  }
}

STEPSIM_TARGET_CLONES void work_on(const double* host,
                                   double launched,
                                   const double* launch,
                                   const double* work,
                                   std::size_t lanes,
                                   double* device) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double there = host[l] + launched * launch[l];
    device[l] = (device[l] > there ? device[l] : there) + work[l];
  }
}

STEPSIM_TARGET_CLONES void work_later_on(const double* host,
                                         double launched,
                                         const double* launch,
                                         const double* critical,
                                         std::size_t lanes,
                                         double* device) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double there = host[l] + launched * launch[l] + critical[l];
    device[l] = device[l] > there ? device[l] : there;
  }
}

STEPSIM_TARGET_CLONES void add_launches(const double* device,
                                        const double* host,
                                        const double* by_device,
                                        const double* by_host,
                                        std::size_t buckets,
                                        std::size_t lanes,
                                        double* latest) {
  for (std::size_t b = 0; b < buckets; ++b) {
    for (std::size_t l = 0; l < lanes; ++l) {
      const double on_device = device[l] + by_device[l];
      const double on_host = host[l] + by_host[l];
      const double launch = on_device > on_host ? on_device : on_host;
      latest[l] = launch > latest[l] ? launch : latest[l];
    }
    by_device += lanes;
    by_host += lanes;
    latest += lanes;
  }
}

STEPSIM_TARGET_CLONES void add(const double* more, std::size_t lanes, double* out) {
  for (std::size_t l = 0; l < lanes; ++l) {
    out[l] += more[l];
  }
}

STEPSIM_TARGET_CLONES void product(const double* a,
                                   const double* b,
                                   std::size_t lanes,
                                   double* out) {
  for (std::size_t l = 0; l < lanes; ++l) {
    out[l] = a[l] * b[l];
  }
}

STEPSIM_TARGET_CLONES bool rounded_times(
    double seconds, const double* load, const double* factor, std::size_t lanes, double* out) {
  std::int64_t beyond = 0;
  for (std::size_t l = 0; l < lanes; ++l) {
    const double exact = (seconds * load[l]) * factor[l] * kPerSecond;
    beyond |= is_beyond(exact);
    out[l] = rounded(exact);
  }
  return beyond == 0;
}

STEPSIM_TARGET_CLONES void launch_kernel(const double* __restrict__ launch,
                                         const double* __restrict__ time,
                                         std::size_t lanes,
                                         double* __restrict__ host,
                                         double* __restrict__ stream) {
  for (std::size_t l = 0; l < lanes; ++l) {
    host[l] += launch[l];
    stream[l] = (stream[l] > host[l] ? stream[l] : host[l]) + time[l];
  }
}

STEPSIM_TARGET_CLONES void span_then_op(const double* launch,
                                        const double* time,
                                        std::size_t lanes,
                                        double* host,
                                        double* device,
                                        double* critical) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double launched_before = host[l] + (launch[l] + time[l]);
    const double still_running = critical[l] + time[l];
    critical[l] = launched_before > still_running ? launched_before : still_running;
    host[l] += launch[l];
    device[l] += time[l];
  }
}

STEPSIM_TARGET_CLONES void span_then(const double* __restrict__ other_host,
                                     const double* __restrict__ other_device,
                                     const double* __restrict__ other_critical,
                                     std::size_t lanes,
                                     double* __restrict__ host,
                                     double* __restrict__ device,
                                     double* __restrict__ critical) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double launched_before = host[l] + other_critical[l];
    const double still_running = critical[l] + other_device[l];
    critical[l] = launched_before > still_running ? launched_before : still_running;
    host[l] += other_host[l];
    device[l] += other_device[l];
  }
}

STEPSIM_TARGET_CLONES void span_twice(std::size_t lanes,
                                      double* __restrict__ host,
                                      double* __restrict__ device,
                                      double* __restrict__ critical) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double launched_before = host[l] + critical[l];
    const double still_running = critical[l] + device[l];
    critical[l] = launched_before > still_running ? launched_before : still_running;
    host[l] *= 2;
    device[l] *= 2;
  }
}

STEPSIM_TARGET_CLONES void work_on_stream(const double* __restrict__ launch,
                                          const double* __restrict__ device,
                                          const double* __restrict__ critical,
                                          std::size_t lanes,
                                          std::size_t counted,
                                          double* __restrict__ host,
                                          double* __restrict__ stream,
                                          double* __restrict__ passed) {
  std::size_t l = 0;
  for (; l < counted; ++l) {
    const double before = stream[l];
    const double by_stream = before + device[l];
    const double by_host = host[l] + critical[l];
    const double end = by_stream > by_host ? by_stream : by_host;
    stream[l] = end;
    passed[l] += end - before;
    host[l] += launch[l];
  }
  for (; l < lanes; ++l) {
    const double by_stream = stream[l] + device[l];
    const double by_host = host[l] + critical[l];
    stream[l] = by_stream > by_host ? by_stream : by_host;
    host[l] += launch[l];
  }
}

STEPSIM_TARGET_CLONES void slowed_times(const double* __restrict__ time,
                                        const double* __restrict__ slowdown,
                                        std::size_t lanes,
                                        double* __restrict__ out) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double exact = time[l] * slowdown[l] + 0.5;
    const double nearest = (exact + kWhole) - kWhole;
    out[l] = nearest + (nearest > exact ? -1.0 : 0.0);
  }
}

STEPSIM_TARGET_CLONES bool slowed_work(const double* __restrict__ ready,
                                       const double* __restrict__ time,
                                       const double* __restrict__ slowed,
                                       const double* __restrict__ resident,
                                       const double* __restrict__ until,
                                       const double* __restrict__ stream,
                                       std::size_t lanes,
                                       double* __restrict__ end) {
  double changes = 0;
  for (std::size_t l = 0; l < lanes; ++l) {
    const double start = stream[l] > ready[l] ? stream[l] : ready[l];
    const double ends = start + (resident[l] != 0 ? slowed[l] : time[l]);
    changes += start >= until[l] || ends > until[l] ? 1.0 : 0.0;
    end[l] = ends;
  }
  return changes == 0;
}

STEPSIM_TARGET_CLONES void wait_until(const double* __restrict__ time,
                                      const double* __restrict__ after,
                                      std::size_t lanes,
                                      std::size_t counted,
                                      double* __restrict__ clock,
                                      double* __restrict__ passed) {
  std::size_t l = 0;
  for (; l < counted; ++l) {
    const double before = clock[l];
    const double until = time[l] + after[l];
    const double end = before > until ? before : until;
    clock[l] = end;
    passed[l] += end - before;
  }
  for (; l < lanes; ++l) {
    const double until = time[l] + after[l];
    clock[l] = clock[l] > until ? clock[l] : until;
  }
}

STEPSIM_TARGET_CLONES void wait_until(const double* __restrict__ time,
                                      const double* __restrict__ after,
                                      std::size_t lanes,
                                      double* __restrict__ clock) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double until = time[l] + after[l];
    clock[l] = clock[l] > until ? clock[l] : until;
  }
}

}  // namespace stepsim
