#include "calibrate/cuda/cuda_backend.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/timing/host_costs.h"
#include "calibrate/training/clock.h"

namespace stepsim::cuda {
namespace {

constexpr int kMaxThrottled = 5;
constexpr auto kCoolDown = std::chrono::milliseconds(500);

}  // namespace

CudaBackend::CudaBackend(const TransformerConfig& model,
                         const std::vector<std::vector<int>>& buckets,
                         const RankPlace& place)
    : device_(place.device),
      info_(device_info()),
      monitor_(info_.bus_id),
      trainer_(model, place.ranks, kWeightSeed),
      group_(place.rank, place.ranks, place.unique_id),
      reducer_(group_, trainer_.stream()),
      stand_in_shape_(place.stand_in),
      model_(model),
      overlap_(place.overlap),
      clock_(trainer_.stream(), trainer_.ops().size()),
      attention_(model.attention == AttentionKind::Dense ? "cuBLASLt products and our softmax"
                                                         : "cuDNN"),
      gradient_dtype_(stored_as(model.parameter_dtype)),
      collective_timer_(group_, reducer_.stream()) {
  if (!buckets.empty()) {
    set_buckets(buckets);
  }
  trainer_.seed_data(kWeightSeed + 1 + static_cast<std::uint64_t>(place.rank));
}

void CudaBackend::set_buckets(const std::vector<std::vector<int>>& buckets) {
  trainer_.set_buckets(buckets);
  clock_.resize(trainer_.ops().size());
}

void CudaBackend::prepare(std::span<const StepBatch> batches) {
  if (model_.attention == AttentionKind::Dense) {
    return;
  }
  TrainingDevice& device = trainer_.device();
  std::set<SdpaShape> shapes;
  for (const StepBatch& batch : batches) {
    shapes.insert(device.sdpa_shape(trainer_.batch_size(batch.lengths, batch.padded_length)));
  }
  device.sdpa.prepare(std::vector<SdpaShape>(shapes.begin(), shapes.end()));
}

std::vector<double> CudaBackend::time_step(std::span<const std::int64_t> lengths) {
  std::vector<double> seconds = time_once(lengths);
  for (int again = 0; again < kMaxThrottled && throttled(); ++again) {
    std::this_thread::sleep_for(kCoolDown);
    seconds = time_once(lengths);
  }
  return seconds;
}

bool CudaBackend::throttled() const {
  const std::optional<DeviceState> state = monitor_.state();
  return state && state->throttled;
}

std::vector<double> CudaBackend::time_once(std::span<const std::int64_t> lengths) {
  clock_.start(OpClock::Marks::Ops);
  trainer_.step(lengths, 1.0, nullptr, &clock_);
  std::vector<double> ops = clock_.op_seconds();
  clock_.start(OpClock::Marks::Chunks);
  trainer_.step(lengths, 1.0, nullptr, &clock_);
  return OpClock::scaled(std::move(ops), clock_.chunk_seconds());
}

CollectiveTimes CudaBackend::time_collective(CollectiveKind kind, Bytes bytes, int calls) {
  return {0, collective_timer_.seconds(kind, gradient_dtype_, bytes.value(), calls)};
}

TrainedStep CudaBackend::run_step(std::span<const std::int64_t> lengths,
                                  double loss_scale,
                                  std::int64_t padded_length,
                                  StreamReducer& reducer) {
  TrainedStep step;
  step.start = clock_seconds();
  const double cpu_start = thread_cpu_seconds();
  static_cast<TrainerStep&>(step) =
      trainer_.step(lengths, loss_scale, &reducer, nullptr, padded_length);
  step.end = clock_seconds();
  step.thread_cpu = thread_cpu_seconds() - cpu_start;
  step.buckets = reducer.times(trainer_.step_start());
  return step;
}

TrainedStep CudaBackend::train_step(std::span<const std::int64_t> lengths,
                                    double loss_scale,
                                    std::int64_t padded_length) {
  reducer_.start_step();
  return run_step(lengths, loss_scale, padded_length, reducer_);
}

TrainedStep CudaBackend::emulate_step(std::span<const std::int64_t> lengths,
                                      double loss_scale,
                                      std::int64_t padded_length,
                                      std::span<const StandIn> collectives) {
  if (!stand_in_) {
    stand_in_.emplace(stand_in_shape_, trainer_.stream());
  }
  stand_in_->start_step(collectives);
  return run_step(lengths, loss_scale, padded_length, *stand_in_);
}

std::vector<OverlapSample> CudaBackend::overlaps(Bytes bytes) {
  OverlapSetting setting = overlap_;
  setting.collective_bytes = bytes.value();
  setting.traffic = stand_in_shape_.traffic;
  return probe_overlaps(
      model_, group_, trainer_.stream(), reducer_.stream(), gradient_dtype_, setting);
}

void CudaBackend::barrier() {
  collective_timer_.barrier();
}

Json CudaBackend::description() const {
  Json json;
  json["backend"] = "cuda";
  json["device"] = info_.name;
  json["multiprocessors"] = info_.multiprocessors;
  json["compute_capability"] = fmt::format("{}.{}", info_.compute_major, info_.compute_minor);
  json["memory_bytes"] = info_.memory_bytes;
  json["l2_bytes"] = info_.l2_bytes;
  json["driver"] = monitor_.driver_version();
  json["cublas"] = cublas_version();
  json["cublas_workspace_bytes"] = trainer_.device().gemm.workspace_bytes();
  json["cudnn"] = cudnn_version();
  json["nccl"] = nccl_version();
  json["collectives"] = "nccl";
  json["attention"] = attention_;
  if (const std::optional<DeviceState> state = monitor_.state()) {
    json["sm_clock_mhz"] = state->sm_clock_mhz;
    json["max_sm_clock_mhz"] = state->max_sm_clock_mhz;
    json["memory_clock_mhz"] = state->memory_clock_mhz;
    json["temperature_celsius"] = state->temperature_celsius;
    json["power_watts"] = state->power_watts;
  }
  return json;
}

std::optional<HostCosts> CudaBackend::host_costs() {
  return measure_host_costs(trainer_);
}

}  // namespace stepsim::cuda
