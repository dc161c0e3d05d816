#include "calibrate/cuda/timing/host_costs.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/timing/op_timer.h"
#include "calibrate/cuda/timing/stream_hold.h"
#include "calibrate/measure/clock.h"
#include "calibrate/samples/statistics.h"

namespace stepsim::cuda {
namespace {

constexpr int kRepetitions = 9;

/// Host seconds to launch an op, averaged over a step. Every few ops it waits for the device,
/// outside the time: however slow the device is, its queue never fills and blocks the host.
double launch_seconds(OpRunner& runner, const StepOpKinds& kinds) {
  constexpr std::array<std::int64_t, 2> kLengths = {8, 8};
  constexpr std::size_t kOps = 40;
  runner.set_batch(kLengths);
  std::vector<double> seconds;
  for (int i = -1; i < kRepetitions; ++i) {
    double total = 0;
    int ops = 0;
    for (std::size_t kind = 0; kind < kinds.ops.size(); ++kind) {
      const Op& op = kinds.ops[kind];
      if (op.op_class == OpClass::Collate) {
        continue;
      }
      if (kind % kOps == 0) {
        runner.stream().synchronize();
      }
      const double start = clock_seconds();
      runner.put(op);
      total += (clock_seconds() - start) * kinds.counts[kind];
      ops += kinds.counts[kind];
    }
    runner.stream().synchronize();
    if (i >= 0) {
      seconds.push_back(total / std::max(1, ops));
    }
  }
  return median(seconds);
}

/// Device time of one of some calls back to back; 0 where no hold lasted long enough.
double device_seconds(OpTimer& timer, int calls, const OpTimer::Put& put) {
  constexpr int kTries = 3;
  put();
  for (int i = 0; i < kTries; ++i) {
    if (const std::optional<double> seconds = timer.seconds(put, calls)) {
      return *seconds;
    }
  }
  return 0;
}

/// Launches into a held stream until one blocks the host.
int queue_depth(const Stream& stream) {
  constexpr int kMax = 8192;
  constexpr double kHold = 0.1;
  constexpr double kBlocked = 0.02;
  launch_nothing(stream);
  stream.synchronize();
  StreamHold hold;
  hold.hold(stream, 0, kHold);
  int launched = 0;
  for (double took = 0; launched < kMax && took < kBlocked; ++launched) {
    const double start = clock_seconds();
    launch_nothing(stream);
    took = clock_seconds() - start;
  }
  hold.release();
  stream.synchronize();
  return launched < kMax ? launched : 0;
}

std::vector<std::pair<std::int64_t, double>> copy_seconds(const Stream& stream, OpTimer& timer) {
  constexpr std::int64_t kLargest = std::int64_t{16} << 20U;
  const HostBuffer from(static_cast<std::size_t>(kLargest));
  const DeviceBuffer to(static_cast<std::size_t>(kLargest));
  std::fill_n(from.as<std::uint8_t>(), kLargest, std::uint8_t{1});
  std::vector<std::pair<std::int64_t, double>> copies;
  for (std::int64_t bytes = 1024; bytes <= kLargest; bytes *= 4) {
    std::vector<double> seconds;
    seconds.reserve(kRepetitions);
    for (int i = 0; i < kRepetitions; ++i) {
      seconds.push_back(device_seconds(timer, 4, [&] {
        copy_to_device(stream, to.data(), from.as<void>(), static_cast<std::size_t>(bytes));
      }));
    }
    copies.emplace_back(bytes, median(seconds));
  }
  return copies;
}

}  // namespace

HostCosts measure_host_costs(OpRunner& runner, const StepOpKinds& kinds) {
  const Stream& stream = runner.stream();
  OpTimer timer(stream);
  HostCosts costs;
  costs.launch_seconds = launch_seconds(runner, kinds);
  costs.kernel_floor_seconds = device_seconds(timer, 64, [&stream] { launch_nothing(stream); });
  costs.queue_depth = queue_depth(stream);
  costs.host_to_device = copy_seconds(stream, timer);
  return costs;
}

}  // namespace stepsim::cuda
