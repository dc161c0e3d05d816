#include "tests/calibrate/measure/fake_backend.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <nlohmann/json.hpp>

#include "calibrate/samples/training_ops.h"
#include "costmodel/compute/cost_features.h"
#include "costmodel/model/model_presets.h"

namespace stepsim::test {
namespace {

class FakeBackend : public Backend {
 public:
  FakeBackend(const FakeMachine& machine,
              const TransformerConfig& model,
              const std::vector<std::vector<int>>& buckets,
              int rank)
      : machine_(machine),
        kinds_(machine.times_ops ? distinct_ops(training_ops(model, buckets)) : StepOpKinds{}),
        noise_(static_cast<std::uint64_t>(rank) + 7) {}

  [[nodiscard]] const StepOpKinds& ops() const override { return kinds_; }

  [[nodiscard]] std::optional<double> time_op(const Op& op, const BatchLengths& lengths) override {
    // Collate is timed once for each batch.
    if (op.op_class == OpClass::Collate && ++batches_ > 30) {
      std::this_thread::sleep_for(std::chrono::duration<double>(machine_.delay));
    }
    return planted_seconds(op, batch_shape(lengths)) * machine_.slowdown * factor();
  }

  [[nodiscard]] std::vector<CollectiveKind> collectives() const override {
    return machine_.collectives;
  }

  [[nodiscard]] CollectiveTimes time_collective(CollectiveKind kind,
                                                Bytes bytes,
                                                int calls) override {
    clock_ += 1;  // All ranks arrive at the same whole second.
    const double seconds = planted_collective_seconds(kind, bytes.value(), calls > 1);
    return {clock_, clock_ + calls * seconds * machine_.slowdown};
  }

  [[nodiscard]] std::vector<OverlapSample> overlaps(Bytes bytes) override {
    std::vector<OverlapSample> samples;
    for (int i = 0; i < machine_.overlaps; ++i) {
      samples.push_back({i + 1, bytes.value(), 2e-3, 3e-3, "gemm", 0, 1e-3, 2e-3});
    }
    return samples;
  }

  void barrier() override {}

  [[nodiscard]] Json description() const override {
    return {{"backend", "cuda"}, {"device", machine_.device}};
  }

 private:
  double factor() { return std::max(0.1, 1 + machine_.noise * noise_.next()); }

  FakeMachine machine_;
  StepOpKinds kinds_;
  Noise noise_;
  double clock_ = 0;
  int batches_ = 0;
};

}  // namespace

double Noise::next() {
  double sum = -6;  // The sum of twelve uniform numbers has variance 1.
  for (int i = 0; i < 12; ++i) {
    sum += static_cast<double>(next_random(&state_) >> 11U) * 0x1p-53;
  }
  return sum;
}

double planted_seconds(const Op& op, const BatchShape& batch) {
  const double tokens = static_cast<double>(batch.padded_tokens());
  const double length = static_cast<double>(batch.max_length);
  switch (op.op_class) {
    case OpClass::AttentionScores:
    case OpClass::Softmax:
    case OpClass::AttentionContext:
      return 5e-6 + 20e-9 * tokens + 0.8e-9 * tokens * length;
    case OpClass::ZeroGradient:
    case OpClass::GradientCopyIn:
    case OpClass::GradientCopyOut:
    case OpClass::Optimizer:
      return 1e-6 + 0.4e-9 * static_cast<double>(op.n);
    case OpClass::Gemm:
      return 4e-6 + 0.05e-9 * op_flops(op, batch);
    default:
      return 2e-6 + 30e-9 * variable_of(op, batch);
  }
}

double planted_collective_seconds(CollectiveKind kind, std::int64_t bytes, bool pipelined) {
  const double share = kind == CollectiveKind::AllReduce ? 1 : 0.5;
  return share * ((pipelined ? 60e-6 : 100e-6) + static_cast<double>(bytes) / 1e9);
}

BackendFactory fake_factory(const FakeMachine& machine) {
  return [machine](const RankContext& context,
                   const TransformerConfig& model,
                   const std::vector<std::vector<int>>& buckets) -> std::unique_ptr<Backend> {
    return std::make_unique<FakeBackend>(machine, model, buckets, context.rank());
  };
}

TransformerConfig small_model() {
  TransformerConfig model = model_preset("tiny-classifier");
  model.layers = 1;
  return model;
}

MeasureRequest small_request(const std::string& samples_file) {
  MeasureRequest request;
  request.model = small_model();
  request.ranks = 2;
  request.device = DeviceKind::Cuda;
  request.box = box_of_limits(request.model, 256, 2048);
  request.buckets = buckets_by_cap(request.model, Bytes(1024 * 1024), Bytes(25 * 1024 * 1024));
  request.budget_seconds = 20;
  request.out = samples_file;
  request.command = "test";
  request.date = "2024-01-01T00:00:00Z";
  return request;
}

}  // namespace stepsim::test
