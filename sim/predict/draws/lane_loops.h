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

/// Adds to each lane.
void add(const double* more, std::size_t lanes, double* out);

/// Sets out to a * b, in each lane.
void product(const double* a, const double* b, std::size_t lanes, double* out);

/// Sets out to (seconds * load) * factor in whole nanoseconds, rounded as by to_duration(). False:
/// one of them is negative, not a number, or longer than kExactTime.
[[nodiscard]] bool rounded_times(
    double seconds, const double* load, const double* factor, std::size_t lanes, double* out);

/// Launches a kernel: the host goes on by `launch`, and the stream ends `time` after the later of
/// both. Arrays are apart from one another.
void launch_kernel(
    const double* launch, const double* time, std::size_t lanes, double* host, double* stream);

/// Adds an op behind a span of work: then(span, op_span(launch, time)).
void span_then_op(const double* launch,
                  const double* time,
                  std::size_t lanes,
                  double* host,
                  double* device,
                  double* critical);

/// Adds a span of work behind another: then(). Arrays are apart from one another.
void span_then(const double* other_host,
               const double* other_device,
               const double* other_critical,
               std::size_t lanes,
               double* host,
               double* device,
               double* critical);

/// Does a span of work twice: then() of it and itself. Arrays are apart from one another.
void span_twice(std::size_t lanes, double* host, double* device, double* critical);

/// Works on a stream: its end is the later of itself plus device, and host plus critical; then the
/// host goes on by launch. `passed`: by how much the end moved is added to this in the first
/// `counted` lanes. Arrays are apart from one another.
void work_on_stream(const double* launch,
                    const double* device,
                    const double* critical,
                    std::size_t lanes,
                    std::size_t counted,
                    double* host,
                    double* stream,
                    double* passed);

/// Sets out to time * slowdown in whole nanoseconds, rounded as by engine_detail::scaled().
void slowed_times(const double* time, const double* slowdown, std::size_t lanes, double* out);

/// Does a kernel on a stream, where `resident` is not 0 beside a collective: `end` is that of
/// `time` or `slowed`, from the later of `stream` and `ready` on. False: in a lane the kernel
/// starts at `until` or later, or ends after it.
[[nodiscard]] bool slowed_work(const double* __restrict__ ready,
                               const double* __restrict__ time,
                               const double* __restrict__ slowed,
                               const double* __restrict__ resident,
                               const double* __restrict__ until,
                               const double* __restrict__ stream,
                               std::size_t lanes,
                               double* __restrict__ end);

/// Sets a clock to the later of itself and time + after. `passed`: as of work_on_stream(). Arrays
/// are apart from one another.
void wait_until(const double* time,
                const double* after,
                std::size_t lanes,
                std::size_t counted,
                double* clock,
                double* passed);

/// Sets a clock to the later of itself and time + after.
void wait_until(const double* time, const double* after, std::size_t lanes, double* clock);

}  // namespace stepsim
