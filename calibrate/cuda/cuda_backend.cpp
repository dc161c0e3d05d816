#include "calibrate/cuda/cuda_backend.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/attention/sdpa_graph.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/timing/host_costs.h"
#include "calibrate/cuda/timing/launch_queue.h"
#include "calibrate/training/clock.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

constexpr int kMostTries = 5;
constexpr double kCoolDown = 0.5;
/// Waiting for the device to cool down in all, in a process: a card that is always hot is measured
/// as it is.
constexpr double kMostCooling = 10;

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
      clock_(trainer_.stream(),
             most_launches(trainer_.ops(), {ready_order(model)}),
             [this] { hot_ = hot_ || monitor_.throttled(); }),
      attention_(model.attention == AttentionKind::Dense ? "products and our softmax" : "cuDNN"),
      gradient_dtype_(stored_as(model.parameter_dtype)),
      collective_timer_(group_, reducer_.stream()) {
  if (!buckets.empty()) {
    set_buckets(buckets);
  }
  trainer_.seed_data(kWeightSeed + 1 + static_cast<std::uint64_t>(place.rank));
}

void CudaBackend::set_buckets(const std::vector<std::vector<int>>& buckets) {
  trainer_.set_buckets(buckets);
  clock_.resize(most_launches(trainer_.ops(), buckets));
}

std::vector<RefusedBatch> CudaBackend::prepare(std::span<const StepBatch> batches) {
  std::vector<BatchSize> sizes;
  for (const StepBatch& batch : batches) {
    sizes.push_back(trainer_.batch_size(batch.lengths, batch.padded_length));
  }
  std::vector<std::string> reasons = plan_attention(sizes);
  std::vector<std::size_t> order(batches.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // By the memory they need, as far as a batch's size tells: dense attention keeps its scores.
  const bool is_dense = model_.attention == AttentionKind::Dense;
  const auto weight = [&sizes, is_dense](std::size_t i) {
    const BatchSize& size = sizes[i];
    return std::pair(is_dense ? size.rows * size.length : size.rows, size.length);
  };
  std::ranges::stable_sort(order, std::greater<>(), weight);
  for (const std::size_t i : order) {
    if (!reasons[i].empty()) {
      continue;
    }
    const BatchSize& size = sizes[i];
    const MetShape shape{size.samples, size.length, size.rows, size.has_padding()};
    if (!met_.contains(shape)) {
      met_[shape] = first_step(batches[i]);
    }
    reasons[i] = met_[shape];
  }
  agree(reasons);
  std::vector<RefusedBatch> refused;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    if (!reasons[i].empty()) {
      refused.push_back({i, reasons[i]});
    }
  }
  return refused;
}

std::vector<std::string> CudaBackend::plan_attention(std::span<const BatchSize> sizes) {
  if (model_.attention == AttentionKind::Dense) {
    return std::vector<std::string>(sizes.size());
  }
  TrainingDevice& device = trainer_.device();
  std::vector<SdpaShape> shapes;
  for (const BatchSize& size : sizes) {
    shapes.push_back(device.sdpa_shape(size));
  }
  return device.sdpa.prepare_all(shapes);
}

std::string CudaBackend::first_step(const StepBatch& batch) {
  try {
    trainer_.step(batch.lengths, 1.0, nullptr, nullptr, batch.padded_length);
    return {};
  } catch (const EnvironmentFault& fault) {
    // Raises in its turn when the device is broken, and not just too small.
    trainer_.stream().synchronize();
    trainer_.release_memory();
    return fault.what();
  }
}

void CudaBackend::agree(std::vector<std::string>& reasons) {
  if (group_.ranks() == 1 || reasons.empty()) {
    return;
  }
  const std::size_t bytes = reasons.size() * sizeof(float);
  const HostBuffer staging(bytes);
  const DeviceBuffer flags(bytes);
  auto* const refused = staging.as<float>();
  std::ranges::transform(
      reasons, refused, [](const std::string& why) { return why.empty() ? 0.0F : 1.0F; });
  const Stream& stream = reducer_.stream();
  copy_to_device(stream, flags.data(), refused, bytes);
  group_.all_reduce(stream, {flags.data(), Dtype::F32}, static_cast<std::int64_t>(reasons.size()));
  copy_to_host(stream, refused, flags.data(), bytes);
  stream.synchronize();
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    if (refused[i] > 0 && reasons[i].empty()) {
      reasons[i] = "another rank cannot run it";
    }
  }
}

std::vector<PreparedPlan> CudaBackend::prepared_plans() const {
  std::vector<PreparedPlan> prepared;
  for (const SdpaPlan& plan : trainer_.device().sdpa.plans()) {
    prepared.push_back({describe(plan.shape),
                        plan.forward_engine,
                        plan.backward_engine,
                        plan.workspace_bytes,
                        plan.seconds});
  }
  return prepared;
}

std::vector<double> CudaBackend::time_step(std::span<const std::int64_t> lengths) {
  for (int i = 0; i < kMostTries; ++i) {
    std::vector<double> seconds = time_once(lengths);
    if (seconds.empty()) {
      ++disturbances_.dropped;
      clock_.halve_chunks();
      continue;
    }
    disturbances_.throttled += hot_ ? 1 : 0;
    if (!hot_ || i + 1 == kMostTries || disturbances_.cooled_seconds >= kMostCooling) {
      return seconds;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(kCoolDown));
    disturbances_.cooled_seconds += kCoolDown;
  }
  return {};
}

std::vector<double> CudaBackend::time_once(std::span<const std::int64_t> lengths) {
  hot_ = false;
  clock_.start(OpClock::Marks::Ops);
  trainer_.step(lengths, 1.0, nullptr, &clock_);
  if (clock_.expired()) {
    return {};
  }
  std::vector<double> ops = clock_.op_seconds();
  clock_.start(OpClock::Marks::Chunks);
  trainer_.step(lengths, 1.0, nullptr, &clock_);
  if (clock_.expired()) {
    return {};
  }
  return clock_.scaled(std::move(ops), clock_.chunk_seconds());
}

CollectiveTimes CudaBackend::time_collective(CollectiveKind kind, Bytes bytes, int calls) {
  const std::optional<double> seconds =
      collective_timer_.seconds(kind, gradient_dtype_, bytes.value(), calls);
  disturbances_.dropped += seconds ? 0 : 1;
  return {0, seconds.value_or(0), seconds.has_value()};
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
  json["kernels"] = name_of(model_.kernels);
  json["cublas_workspace_bytes"] = trainer_.device().gemm.cublas_workspace_bytes();
  json["cublaslt_workspace_bytes"] = trainer_.device().gemm.cublaslt_workspace_bytes();
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
