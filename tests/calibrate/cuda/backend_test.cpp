// The CUDA backend on the emulated device: measuring, live steps and emulated ranks.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "calibrate/cuda/cuda_backend.h"
#include "calibrate/cuda/timing/stream_hold.h"
#include "calibrate/measure/measure_rank.h"
#include "calibrate/ranks/rank_processes.h"
#include "calibrate/samples/measure_plan.h"
#include "costmodel/model/model_presets.h"
#include "tests/calibrate/cuda/emulation/clock.h"
#include "tests/calibrate/cuda/emulation/device_limits.h"

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
  return std::make_unique<cuda::CudaBackend>(
      model, buckets_by_cap(model, Bytes(1024), Bytes(4096)), cuda::RankPlace{});
}

const std::vector<std::int64_t> kLengths = {9, 16};

}  // namespace

TEST_CASE("a measured step times every op") {
  const auto backend = small_backend();
  CHECK(backend->prepare(std::vector<StepBatch>{{kLengths, 0}}).empty());
  CHECK(backend->prepared_plans().size() == 1);
  const std::vector<double> seconds = backend->time_step(kLengths);
  REQUIRE(seconds.size() == backend->ops().size());
  for (const double op : seconds) {
    CHECK(op >= 0);
  }
}

TEST_CASE("an untimed step of every shape, the largest first, grows all memory before the others") {
  const auto backend = small_backend();
  const std::vector<StepBatch> batches = {{{3, 4}, 0}, {{16, 16, 9}, 0}, {kLengths, 0}};
  CHECK(backend->prepare(batches).empty());
  const std::size_t used = cuda::emulated::memory_used;
  for (const StepBatch& batch : batches) {
    CHECK_FALSE(backend->time_step(batch.lengths).empty());
  }
  CHECK(cuda::emulated::memory_used == used);
}

TEST_CASE("a batch that does not fit is refused, and smaller ones run after it") {
  const cuda::emulated::LimitsLifted lifted;
  const auto backend = small_backend();
  // Room for what is there and two small samples, not for forty.
  cuda::emulated::memory_limit = cuda::emulated::memory_used + (std::size_t{1} << 20U);
  const std::vector<StepBatch> batches = {{kLengths, 0}, {std::vector<std::int64_t>(40, 60), 0}};
  for (int again = 0; again < 2; ++again) {
    const std::vector<RefusedBatch> refused = backend->prepare(batches);
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].index == 1);
    CHECK(refused[0].why.find("out of memory") != std::string::npos);
  }
  CHECK_FALSE(backend->time_step(kLengths).empty());
  CHECK(backend->train_step(kLengths, 1.0, 0).loss > 0);
}

TEST_CASE("a batch without a plan is refused, and the others are measured") {
  const cuda::emulated::LimitsLifted lifted;
  cuda::emulated::length_without_plan = 16;
  const auto backend = small_backend();
  const std::vector<RefusedBatch> refused =
      backend->prepare(std::vector<StepBatch>{{{9, 9}, 0}, {kLengths, 0}});
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].index == 1);
  CHECK(refused[0].why.find("no fused attention kernel for bf16, 2 x 16") != std::string::npos);
  CHECK_FALSE(backend->time_step(std::vector<std::int64_t>{9, 9}).empty());
}

TEST_CASE("all ranks refuse what one of them cannot run") {
  std::vector<std::string> said;
  run_ranks(
      2,
      [](const RankContext& context) {
        cuda::RankPlace place;
        place.rank = context.rank();
        place.ranks = 2;
        place.unique_id = context.broadcast(context.rank() == 0 ? cuda::nccl_unique_id() : "");
        cuda::emulated::length_without_plan = context.rank() == 1 ? 16 : 0;
        cuda::CudaBackend backend(small_model(), {}, place);
        RankPass pass;
        pass.rank = context.rank();
        pass.ranks = 2;
        pass.repetitions = 1;
        pass.points = {{2, 9}, {2, 16}, {1, 9}};
        pass.sentinel = {8};
        pass.bucket_bytes = {4096};
        measure_rank_pass(backend, pass, [&](const std::string& line) { context.send(line); });
      },
      [&](int, const std::string& line) { said.push_back(line); });
  const auto count = [&said](const char* text) {
    return std::ranges::count_if(
        said, [text](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  CHECK(count(R"("kind":"refused")") == 1);
  CHECK(count("another rank cannot run it") == 1);
  CHECK(count(R"("kind":"step")") == 4);
  CHECK(count(R"("max_length":16,"useful)") == 0);
}

TEST_CASE("times behind a hold that ends by itself are dropped and counted") {
  const auto backend = small_backend();
  cuda::emulated::holds_expire = true;
  const bool none = backend->time_step(kLengths).empty();
  const bool sound = backend->time_collective(CollectiveKind::AllReduce, Bytes(64), 1).sound;
  cuda::emulated::holds_expire = false;
  CHECK(none);
  CHECK_FALSE(sound);
  CHECK(backend->disturbances().dropped == 5 + 1);  // Each try of the step, and the collective.
  CHECK_FALSE(backend->time_step(kLengths).empty());
  CHECK(backend->disturbances().dropped == 6);
}

TEST_CASE("a hold tells that it has ended by itself") {
  const cuda::Stream stream;
  cuda::StreamHold hold(2);
  cuda::emulated::holds_expire = true;
  hold.release(0);
  hold.hold(stream, 0);
  CHECK_FALSE(hold.expired());
  hold.hold(stream, 1);
  CHECK(hold.expired());
  cuda::emulated::holds_expire = false;
  hold.start();
  CHECK_FALSE(hold.expired());
}

TEST_CASE("times of ops are scaled to the time of their chunk") {
  // The first op, and a hundred with a launch and an event each in 960 less 2 of the hold: all.
  std::vector<double> ops(1 + 100, 1.0);
  const cuda::Stream stream;
  cuda::OpClock clock(stream, std::vector<int>(ops.size(), 8));
  const std::vector<double> scaled = clock.scaled(ops, {50.0});
  CHECK(scaled[0] == 1.0);
  CHECK(scaled[1] == doctest::Approx(0.5));
  CHECK(scaled[100] == doctest::Approx(0.5));
  clock.halve_chunks();  // 53 of (480 - 2) / 9, and 47.
  const std::vector<double> finer = clock.scaled(ops, {26.5, 94.0});
  CHECK(finer[53] == doctest::Approx(0.5));
  CHECK(finer[54] == doctest::Approx(2));
  CHECK(finer[100] == doctest::Approx(2));
}

TEST_CASE("the stream is held for as many ops as fit into the queue, and never for more") {
  const cuda::Stream stream;
  cuda::emulated::holds_expire = true;  // Tells which ops were held for.
  const auto held = [&stream](std::vector<int> launches) {
    cuda::OpClock clock(stream, launches);
    clock.start(cuda::OpClock::Marks::Ops);
    for (std::size_t op = 0; op < launches.size(); ++op) {
      clock.op_begin(op);
      clock.op_done(op);
    }
    CHECK(clock.op_seconds().size() == launches.size());
    return std::pair(clock.expired(), clock.chunk_seconds().size());
  };
  CHECK(held({0, 20, 900}) == std::pair(true, std::size_t{1}));
  CHECK(held({0, 20, 937}) == std::pair(true, std::size_t{2}));
  // A bucket of a thousand parameters that are copied out one by one.
  CHECK(held({0, 2000}) == std::pair(false, std::size_t{1}));
  CHECK(held({0, 20, 2000, 20}) == std::pair(true, std::size_t{3}));
  cuda::emulated::holds_expire = false;
}

TEST_CASE("heat is seen that holds the clock down while the device is at work, and only then") {
  void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  auto* const reads = nvml == nullptr ? nullptr : static_cast<int*>(dlsym(nvml, "fake_nvml_reads"));
  if (reads == nullptr) {
    MESSAGE("skipped: no NVML on the library path that tells what it is asked (fake_nvml.cpp)");
    return;
  }
  const auto backend = small_backend();
  *reads = 0;
  CHECK_FALSE(backend->time_step(kLengths).empty());
  // The second read of a step says that it is hot; the step is then taken again.
  CHECK(*reads > 2);
  CHECK(backend->disturbances().throttled == 1);
  CHECK(backend->disturbances().cooled_seconds == 0.5);
  CHECK_FALSE(backend->time_step(kLengths).empty());
  CHECK(backend->disturbances().throttled == 1);
  dlclose(nvml);
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
                          "kernels",
                          "cublas_workspace_bytes",
                          "cublaslt_workspace_bytes"}) {
    CAPTURE(key);
    CHECK(description.contains(key));
  }
}

}  // namespace stepsim
