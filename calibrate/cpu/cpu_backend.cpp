#include "calibrate/cpu/cpu_backend.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "calibrate/cpu/processor.h"
#include "calibrate/training/clock.h"

namespace stepsim {
namespace {

/// Takes the clock at the end of every op.
class OpClock : public OpTimer {
 public:
  explicit OpClock(std::size_t ops) : seconds_(ops, 0.0), last_(clock_seconds()) {}
  void op_done(std::size_t op_index) override {
    const double now = clock_seconds();
    seconds_[op_index] = now - last_;
    last_ = now;
  }
  [[nodiscard]] std::vector<double> take() { return std::move(seconds_); }

 private:
  std::vector<double> seconds_;
  double last_;
};

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

Json CpuBackend::description() const {
  Json json;
  json["backend"] = "cpu";
  json["device"] = processor_name();
  json["kernels"] = cpu::kernel_build();
  json["eigen"] = cpu::eigen_version();
  json["gloo"] = gloo_version();
  json["collectives"] = "gloo";
  json["threads_per_rank"] = 1;
  return json;
}

CpuBackend::CpuBackend(const TransformerConfig& model,
                       const std::vector<std::vector<int>>& buckets,
                       int rank,
                       int ranks,
                       const std::string& folder)
    : trainer_(model, ranks, kWeightSeed), group_(rank, ranks, folder), reducer_(group_) {
  if (!buckets.empty()) {
    trainer_.set_buckets(buckets);
  }
  trainer_.seed_data(kWeightSeed + 1 + static_cast<std::uint64_t>(rank));
}

std::vector<double> CpuBackend::time_step(std::span<const std::int64_t> lengths) {
  OpClock clock(trainer_.ops().size());
  trainer_.step(lengths, 1.0, nullptr, &clock);
  return clock.take();
}

CollectiveTimes CpuBackend::time_collective(CollectiveKind /*kind*/, Bytes bytes, int calls) {
  const auto count = static_cast<std::size_t>(bytes.value()) / sizeof(float);
  // Zeros stay zeros when they are summed again and again.
  message_.resize(std::max(message_.size(), count));
  reducer_.start_step();
  const auto last = static_cast<std::size_t>(calls) - 1;
  for (std::size_t call = 0; call <= last; ++call) {
    reducer_.launch(call, cpu::Array(message_.data()), static_cast<std::int64_t>(count));
  }
  reducer_.wait(last);
  CollectiveTimes times;
  times.arrival = reducer_.times()[0].launch;
  times.end = clock_seconds();
  return times;
}

TrainedStep CpuBackend::train_step(std::span<const std::int64_t> lengths,
                                   double loss_scale,
                                   std::int64_t padded_length) {
  TrainedStep step;
  reducer_.start_step();
  step.start = clock_seconds();
  const double cpu_start = thread_cpu_seconds();
  static_cast<TrainerStep&>(step) =
      trainer_.step(lengths, loss_scale, &reducer_, nullptr, padded_length);
  step.end = clock_seconds();
  step.thread_cpu = thread_cpu_seconds() - cpu_start;
  for (const GlooReducer::Times& times : reducer_.times()) {
    step.buckets.push_back({static_cast<std::int64_t>(times.bytes),
                            times.launch - step.start,
                            times.end - step.start});
  }
  return step;
}

void CpuBackend::barrier() {
  reducer_.barrier();
}

}  // namespace stepsim
