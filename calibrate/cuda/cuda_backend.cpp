#include "calibrate/cuda/cuda_backend.h"

#include <algorithm>

#include <fmt/core.h>

#include "calibrate/clock.h"
#include "calibrate/cuda/gemm.h"
#include "calibrate/cuda/parameter_store.h"
#include "calibrate/cuda/sdpa.h"

namespace stepsim::cuda {
namespace {

constexpr std::uint64_t kWeightSeed = 20240501;

}  // namespace

CudaBackend::CudaBackend(const TransformerConfig& model,
                         const std::vector<std::vector<int>>& buckets,
                         const RankPlace& place)
    : device_(place.device),
      trainer_(model, place.ranks, kWeightSeed),
      group_(place.rank, place.ranks, place.unique_id),
      reducer_(group_),
      clock_(trainer_.stream(), trainer_.ops().size()),
      gradient_dtype_(stored_as(model.parameter_dtype)),
      token_(sizeof(float)) {
  if (!buckets.empty()) {
    set_buckets(buckets);
  }
  trainer_.seed_data(kWeightSeed + 1 + static_cast<std::uint64_t>(place.rank));
  set_zero(reducer_.stream(), token_.data(), sizeof(float));
}

void CudaBackend::set_buckets(const std::vector<std::vector<int>>& buckets) {
  trainer_.set_buckets(buckets);
  clock_.resize(trainer_.ops().size());
}

std::vector<double> CudaBackend::time_step(std::span<const std::int64_t> lengths) {
  clock_.start(OpClock::Marks::Ops);
  trainer_.step(lengths, 1.0, nullptr, &clock_);
  std::vector<double> ops = clock_.op_seconds();
  clock_.start(OpClock::Marks::Chunks);
  trainer_.step(lengths, 1.0, nullptr, &clock_);
  return OpClock::scaled(std::move(ops), clock_.chunk_seconds());
}

TrainedStep CudaBackend::train_step(std::span<const std::int64_t> lengths,
                                    double loss_scale,
                                    std::int64_t padded_length) {
  TrainedStep step;
  reducer_.start_step();
  step.start = clock_seconds();
  const double cpu_start = thread_cpu_seconds();
  const TrainerStep parts = trainer_.step(lengths, loss_scale, &reducer_, nullptr, padded_length);
  step.end = clock_seconds();
  step.thread_cpu = thread_cpu_seconds() - cpu_start;
  step.data = parts.data;
  step.forward = parts.forward;
  step.backward = parts.backward;
  step.wait = parts.wait;
  step.optimizer = parts.optimizer;
  step.loss = parts.loss;
  for (const BucketTime& bucket : reducer_.marks().times(trainer_.step_start())) {
    step.buckets.push_back({bucket.bytes, bucket.launch, bucket.end});
  }
  return step;
}

void CudaBackend::barrier() {
  group_.all_reduce(reducer_.stream(), {token_.data(), Dtype::F32}, 1);
  reducer_.stream().synchronize();
}

}  // namespace stepsim::cuda
