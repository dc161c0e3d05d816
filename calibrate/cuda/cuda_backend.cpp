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
#include "calibrate/measure/clock.h"
#include "calibrate/samples/training_ops.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/batch_shape.h"

namespace stepsim::cuda {
namespace {

constexpr int kMostTries = 5;
constexpr double kCoolDown = 0.5;
/// Waiting for the device to cool down in all, in a process: a card that is always hot is measured
/// as it is.
constexpr double kMostCooling = 10;
/// A shorter time is none that a device can tell.
constexpr double kShortest = 1e-7;

}  // namespace

CudaBackend::CudaBackend(const TransformerConfig& model,
                         const std::vector<std::vector<int>>& buckets,
                         const RankPlace& place)
    : device_(place.device),
      info_(device_info()),
      monitor_(info_.bus_id),
      model_(model),
      kinds_(distinct_ops(training_ops(model, buckets))),
      runner_(model),
      group_(place.rank, place.ranks, place.unique_id),
      overlap_(place.overlap),
      timer_(runner_.stream(), [this] { hot_ = hot_ || monitor_.throttled(); }),
      gradient_dtype_(stored_as(model.parameter_dtype)),
      collective_timer_(group_, communication_) {}

std::vector<RefusedBatch> CudaBackend::prepare(std::span<const BatchLengths> batches) {
  const std::vector<BatchShape> shapes =
      mapped(batches, [](const BatchLengths& lengths) { return batch_shape(lengths); });
  std::vector<std::string> reasons = runner_.prepare(shapes);
  std::vector<std::size_t> order(batches.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // By the memory they need, as far as a batch's size tells: dense attention keeps its scores.
  const bool is_dense = model_.attention == AttentionKind::Dense;
  const auto weight = [&shapes, is_dense](std::size_t i) {
    const BatchShape& shape = shapes[i];
    const std::int64_t tokens = shape.padded_tokens();
    return std::pair(is_dense ? tokens * shape.max_length : tokens, shape.max_length);
  };
  std::ranges::stable_sort(order, std::greater<>(), weight);
  for (const std::size_t i : order) {
    if (!reasons[i].empty()) {
      continue;
    }
    const MetShape shape{shapes[i].samples, shapes[i].max_length, shapes[i].useful_tokens};
    if (!met_.contains(shape)) {
      met_[shape] = first_run(batches[i]);
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

std::string CudaBackend::first_run(const BatchLengths& lengths) {
  try {
    runner_.set_batch(lengths);
    for (const Op& op : kinds_.ops) {
      if (runner_.is_in_product(op)) {
        runner_.put_product(op);
      }
      runner_.put(op);
    }
    runner_.stream().synchronize();
    return {};
  } catch (const EnvironmentFault& fault) {
    // Raises in its turn when the device is broken, and not just too small.
    runner_.release_memory();
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
  const Stream& stream = communication_;
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
  for (const SdpaPlan& plan : runner_.sdpa().plans()) {
    prepared.push_back({describe(plan.shape),
                        plan.forward_engine,
                        plan.backward_engine,
                        plan.workspace_bytes,
                        plan.seconds});
  }
  return prepared;
}

std::optional<double> CudaBackend::time_op(const Op& op, const BatchLengths& lengths) {
  runner_.set_batch(lengths);
  for (int i = 0; i < kMostTries; ++i) {
    const std::optional<double> seconds = time_once(op);
    if (!seconds) {
      ++disturbances_.dropped;
      continue;
    }
    disturbances_.throttled += hot_ ? 1 : 0;
    if (!hot_ || i + 1 == kMostTries || disturbances_.cooled_seconds >= kMostCooling) {
      return seconds;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(kCoolDown));
    disturbances_.cooled_seconds += kCoolDown;
  }
  return std::nullopt;
}

std::optional<double> CudaBackend::time_once(const Op& op) {
  hot_ = false;
  if (op.op_class == OpClass::Collate) {
    const double start = clock_seconds();
    runner_.put(op);
    runner_.stream().synchronize();
    return clock_seconds() - start;
  }
  const std::optional<double> seconds = timer_.seconds([&] { runner_.put(op); });
  if (!seconds || !runner_.is_in_product(op)) {
    return seconds;
  }
  const std::optional<double> product = timer_.seconds([&] { runner_.put_product(op); });
  return product ? std::optional(std::max(kShortest, *seconds - *product)) : std::nullopt;
}

CollectiveTimes CudaBackend::time_collective(CollectiveKind kind, Bytes bytes, int calls) {
  const std::optional<double> seconds =
      collective_timer_.seconds(kind, gradient_dtype_, bytes.value(), calls);
  disturbances_.dropped += seconds ? 0 : 1;
  return {0, seconds.value_or(0), seconds.has_value()};
}

std::vector<OverlapSample> CudaBackend::overlaps(Bytes bytes) {
  OverlapSetting setting = overlap_;
  setting.collective_bytes = bytes.value();
  return probe_overlaps(model_, group_, runner_.stream(), communication_, gradient_dtype_, setting);
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
  json["cublas_workspace_bytes"] = runner_.gemm().cublas_workspace_bytes();
  json["cublaslt_workspace_bytes"] = runner_.gemm().cublaslt_workspace_bytes();
  json["cudnn"] = cudnn_version();
  json["nccl"] = nccl_version();
  json["collectives"] = "nccl";
  json["attention"] = model_.attention == AttentionKind::Dense ? "products" : "cuDNN";
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
  const BatchLengths small = {8, 8};
  if (!prepare({&small, 1}).empty()) {
    return std::nullopt;
  }
  return measure_host_costs(runner_, kinds_);
}

}  // namespace stepsim::cuda
