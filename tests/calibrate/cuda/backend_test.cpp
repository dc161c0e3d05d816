// The CUDA backend on the emulated device: measuring, live steps and emulated ranks.
#include <cstdint>
#include <memory>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "calibrate/cuda/cuda_backend.h"
#include "calibrate/samples/measure_plan.h"
#include "costmodel/model/model_presets.h"

namespace stepsim {
namespace {

TransformerConfig small_model() {
  TransformerConfig model = model_preset("tiny-classifier");
  model.layers = 1;
  model.hidden = 32;
  model.ffn = 64;
  model.vocab = 100;
  model.dtype = Dtype::Bf16;
  model.attention = AttentionKind::Flash;
  return model;
}

std::unique_ptr<cuda::CudaBackend> small_backend() {
  const TransformerConfig model = small_model();
  cuda::RankPlace place;
  place.unique_id = cuda::nccl_unique_id();
  return std::make_unique<cuda::CudaBackend>(
      model, buckets_by_cap(model, Bytes(1024), Bytes(4096)), place);
}

const std::vector<std::int64_t> kLengths = {9, 16};

}  // namespace

TEST_CASE("a measured step times every op") {
  const auto backend = small_backend();
  backend->prepare(std::vector<StepBatch>{{kLengths, 0}});
  const std::vector<double> seconds = backend->time_step(kLengths);
  REQUIRE(seconds.size() == backend->ops().size());
  for (const double op : seconds) {
    CHECK(op >= 0);
  }
}

TEST_CASE("times of ops are scaled to the time of their chunk") {
  std::vector<double> ops(1 + 130, 1.0);  // The first op, a chunk of 128, and one of 2.
  const std::vector<double> scaled = cuda::OpClock::scaled(ops, {64.0, 3.0});
  CHECK(scaled[0] == 1.0);
  CHECK(scaled[1] == doctest::Approx(0.5));
  CHECK(scaled[128] == doctest::Approx(0.5));
  CHECK(scaled[129] == doctest::Approx(1.5));
}

TEST_CASE("a live step tells its parts and its buckets") {
  const auto backend = small_backend();
  const TrainedStep step = backend->train_step(kLengths, 1.0, 0);
  CHECK(step.loss > 0);
  CHECK(step.end > step.start);
  CHECK(step.data + step.forward + step.backward + step.wait + step.optimizer <=
        1.001 * (step.end - step.start));
  const std::vector<std::int64_t> bytes =
      bucket_bytes(small_model(), buckets_by_cap(small_model(), Bytes(1024), Bytes(4096)));
  REQUIRE(step.buckets.size() == bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    CHECK(step.buckets[i].bytes == bytes[i]);
    CHECK(step.buckets[i].launch >= 0);
    CHECK(step.buckets[i].end >= step.buckets[i].launch);
  }
}

TEST_CASE("an emulated step holds its stand-ins as long as it is told") {
  const auto backend = small_backend();
  const TrainedStep alone = backend->emulate_step(kLengths, 1.0, 0, {});
  const std::vector<StandIn> collectives(alone.buckets.size(), {0.002, 0.003});
  const TrainedStep step = backend->emulate_step(kLengths, 1.0, 0, collectives);
  REQUIRE(step.buckets.size() == collectives.size());
  for (const TrainedStep::Bucket& bucket : step.buckets) {
    CHECK(bucket.end - bucket.launch >= 0.005);
  }
}

TEST_CASE("host costs are measured") {
  const HostCosts costs = small_backend()->host_costs().value();
  CHECK(costs.launch_seconds > 0);
  CHECK(costs.host_to_device.size() == 8);
  CHECK(costs.host_to_device.front().first == 1024);
  for (const auto& [bytes, seconds] : costs.host_to_device) {
    CHECK(seconds > 0);
  }
}

TEST_CASE("the description names the libraries and the device") {
  const Json description = small_backend()->description();
  for (const char* key : {"backend",
                          "device",
                          "multiprocessors",
                          "memory_bytes",
                          "cublas",
                          "cudnn",
                          "nccl",
                          "collectives",
                          "attention",
                          "cublas_workspace_bytes"}) {
    CAPTURE(key);
    CHECK(description.contains(key));
  }
}

}  // namespace stepsim
