// The CUDA backend on the emulated device.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "calibrate/cuda/cuda_backend.h"
#include "calibrate/cuda/timing/op_timer.h"
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

const BatchLengths kLengths = {9, 16};

Op attention_op(const Backend& backend) {
  return *std::ranges::find(backend.ops().ops, OpClass::Attention, &Op::op_class);
}

}  // namespace

TEST_CASE("every op of a step is timed") {
  const auto backend = small_backend();
  CHECK(backend->prepare(std::vector<BatchLengths>{kLengths}).empty());
  CHECK(backend->prepared_plans().size() == 1);
  CHECK(backend->ops().ops.size() > 20);
  for (const Op& op : backend->ops().ops) {
    CAPTURE(op_key(op));
    CHECK(backend->time_op(op, kLengths).value() > 0);
  }
}

TEST_CASE("a fused activation takes what the product beside it takes longer with it") {
  const cuda::emulated::LimitsLifted lifted;
  TransformerConfig model = small_model();
  model.kernels = KernelChoice::Fused;
  cuda::CudaBackend backend(model, {}, cuda::RankPlace{});
  CHECK(backend.prepare(std::vector<BatchLengths>{kLengths}).empty());
  cuda::emulated::product_nanoseconds = 50'000'000;
  cuda::emulated::gelu_nanoseconds = 20'000'000;
  int activations = 0;
  for (const Op& op : backend.ops().ops) {
    if (op.op_class == OpClass::Activation) {
      ++activations;
      const double seconds = backend.time_op(op, kLengths).value();
      CHECK(seconds > 0.01);
      CHECK(seconds < 0.04);
    }
    if (op.op_class == OpClass::Gemm) {
      CHECK(backend.time_op(op, kLengths).value() > 0.04);
    }
  }
  CHECK(activations == 2);
}

TEST_CASE("every shape is run once, the largest first, and grows all memory before it is timed") {
  const auto backend = small_backend();
  const std::vector<BatchLengths> batches = {{3, 4}, {16, 16, 9}, kLengths};
  CHECK(backend->prepare(batches).empty());
  const std::size_t used = cuda::emulated::memory_used;
  for (const BatchLengths& lengths : batches) {
    for (const Op& op : backend->ops().ops) {
      CHECK(backend->time_op(op, lengths));
    }
  }
  CHECK(cuda::emulated::memory_used == used);
}

TEST_CASE("a batch that does not fit is refused, and smaller ones run after it") {
  const cuda::emulated::LimitsLifted lifted;
  // Room for two small samples, and none besides: what the large batch took has to be given back.
  const std::size_t before = cuda::emulated::memory_used;
  std::size_t needed = 0;
  {
    const auto trial = small_backend();
    CHECK(trial->prepare(std::vector<BatchLengths>{kLengths}).empty());
    needed = cuda::emulated::memory_used - before;
  }
  const auto backend = small_backend();
  cuda::emulated::memory_limit = before + needed;
  const std::vector<BatchLengths> batches = {kLengths, BatchLengths(40, 60)};
  for (int again = 0; again < 2; ++again) {
    const std::vector<RefusedBatch> refused = backend->prepare(batches);
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].index == 1);
    CHECK(refused[0].why.find("out of memory") != std::string::npos);
  }
  CHECK(backend->time_op(backend->ops().ops.back(), kLengths));
}

TEST_CASE("a batch without a plan is refused, and the others are measured") {
  const cuda::emulated::LimitsLifted lifted;
  cuda::emulated::length_without_plan = 16;
  const auto backend = small_backend();
  const std::vector<RefusedBatch> refused =
      backend->prepare(std::vector<BatchLengths>{{9, 9}, kLengths});
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].index == 1);
  CHECK(refused[0].why.find("no fused attention kernel for bf16, 2 x 16") != std::string::npos);
  CHECK(backend->time_op(attention_op(*backend), {9, 9}));
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
  const Op op = attention_op(*backend);
  CHECK(backend->prepare(std::vector<BatchLengths>{kLengths}).empty());
  cuda::emulated::holds_expire = true;
  const bool none = !backend->time_op(op, kLengths);
  const bool sound = backend->time_collective(CollectiveKind::AllReduce, Bytes(64), 1).sound;
  cuda::emulated::holds_expire = false;
  CHECK(none);
  CHECK_FALSE(sound);
  CHECK(backend->disturbances().dropped == 5 + 1);  // Each try of the op, and the collective.
  CHECK(backend->time_op(op, kLengths));
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

TEST_CASE("work is repeated until it lasts a tenth of a millisecond, 32 times at most") {
  const cuda::Stream stream;
  cuda::OpTimer timer(stream);
  const auto calls_of = [&timer](unsigned microseconds) {
    int calls = 0;
    const auto seconds = timer.seconds([&] {
      ++calls;
      cuda::emulated::napped += 1000ULL * microseconds;
    });
    CHECK(seconds.value() >= microseconds * 1e-6);
    CHECK(seconds.value() < microseconds * 1e-6 + 20e-6);
    return calls;
  };
  CHECK(calls_of(1000) == 1);
  // One, and as many more as last long enough; the host's own time may make it fewer.
  CHECK(calls_of(30) <= 1 + 4);
  CHECK(calls_of(30) >= 1 + 2);
  CHECK(calls_of(0) == 1 + 32);
}

TEST_CASE("heat is seen that holds the clock down while the device is at work, and only then") {
  void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  auto* const reads = nvml == nullptr ? nullptr : static_cast<int*>(dlsym(nvml, "fake_nvml_reads"));
  if (reads == nullptr) {
    MESSAGE("skipped: no NVML on the library path that tells what it is asked (fake_nvml.cpp)");
    return;
  }
  const auto backend = small_backend();
  const Op op = attention_op(*backend);
  CHECK(backend->prepare(std::vector<BatchLengths>{kLengths}).empty());
  *reads = 0;
  CHECK(backend->time_op(op, kLengths));
  CHECK(backend->time_op(op, kLengths));
  // The second read says that it is hot; that op is then timed again.
  CHECK(*reads > 2);
  CHECK(backend->disturbances().throttled == 1);
  CHECK(backend->disturbances().cooled_seconds == 0.5);
  CHECK(backend->time_op(op, kLengths));
  CHECK(backend->disturbances().throttled == 1);
  dlclose(nvml);
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
