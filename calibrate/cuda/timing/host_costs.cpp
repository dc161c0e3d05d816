#include "calibrate/cuda/timing/host_costs.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/timing/launch_queue.h"
#include "calibrate/cuda/timing/stream_hold.h"
#include "calibrate/samples/statistics.h"
#include "calibrate/training/clock.h"

namespace stepsim::cuda {
namespace {

constexpr int kRepetitions = 9;

/// Adds up the host's time for the launches of a step behind its batch. Every few ops it waits for
/// the device, outside the time: however slow the device is, its queue never fills and blocks the
/// host.
class LaunchTimer : public OpTimer {
 public:
  explicit LaunchTimer(const Stream& stream) : stream_(stream) {}

  void op_begin(std::size_t op) override {
    if (op % kOps == 1) {
      stream_.synchronize();
    }
    begin_ = clock_seconds();
  }
  void op_done(std::size_t op) override {
    if (op > 0) {
      total_ += clock_seconds() - begin_;
      ++ops_;
    }
  }
  [[nodiscard]] double per_op() const { return total_ / static_cast<double>(ops_); }

 private:
  /// Two ops short of what the queue holds: op_begin() of the first waits.
  static constexpr std::size_t kOps = kQueued / kLaunchesOfOp - 2;

  const Stream& stream_;
  double begin_ = 0;
  double total_ = 0;
  std::size_t ops_ = 0;
};

double launch_seconds(Trainer& trainer) {
  constexpr std::array<std::int64_t, 2> kLengths = {8, 8};
  std::vector<double> seconds;
  for (int i = -1; i < kRepetitions; ++i) {
    LaunchTimer timer(trainer.stream());
    trainer.step(kLengths, 1.0, nullptr, &timer);
    if (i >= 0) {
      seconds.push_back(timer.per_op());
    }
  }
  return median(seconds);
}

/// Device time of `work` repeated, over its repetitions, launched behind a held stream. Where every
/// hold ends too soon, the last time, which holds launches.
template <typename Work>
double device_seconds(const Stream& stream, int repetitions, const Work& work) {
  constexpr int kTries = 3;
  const Event begin;
  const Event end;
  StreamHold hold;
  work();
  for (int i = 0; i < kTries; ++i) {
    stream.synchronize();
    hold.start();
    hold.hold(stream);
    begin.record(stream);
    for (int j = 0; j < repetitions; ++j) {
      work();
    }
    end.record(stream);
    hold.release();
    stream.synchronize();
    if (!hold.expired()) {
      break;
    }
  }
  return seconds_between(begin, end) / repetitions;
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

std::vector<std::pair<std::int64_t, double>> copy_seconds(const Stream& stream) {
  constexpr std::int64_t kLargest = std::int64_t{16} << 20U;
  const HostBuffer from(static_cast<std::size_t>(kLargest));
  const DeviceBuffer to(static_cast<std::size_t>(kLargest));
  std::fill_n(from.as<std::uint8_t>(), kLargest, std::uint8_t{1});
  std::vector<std::pair<std::int64_t, double>> copies;
  for (std::int64_t bytes = 1024; bytes <= kLargest; bytes *= 4) {
    std::vector<double> seconds;
    seconds.reserve(kRepetitions);
    for (int i = 0; i < kRepetitions; ++i) {
      seconds.push_back(device_seconds(stream, 4, [&] {
        copy_to_device(stream, to.data(), from.as<void>(), static_cast<std::size_t>(bytes));
      }));
    }
    copies.emplace_back(bytes, median(seconds));
  }
  return copies;
}

}  // namespace

HostCosts measure_host_costs(Trainer& trainer) {
  const Stream& stream = trainer.stream();
  HostCosts costs;
  costs.launch_seconds = launch_seconds(trainer);
  costs.kernel_floor_seconds = device_seconds(stream, 64, [&stream] { launch_nothing(stream); });
  costs.queue_depth = queue_depth(stream);
  costs.host_to_device = copy_seconds(stream);
  return costs;
}

}  // namespace stepsim::cuda
