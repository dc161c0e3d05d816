// Figures that articles print, against the arithmetic of costmodel: volumes of all-reduces and of
// compressed ones, memory by ZeRO stage, counts of buckets, attention's work. Some of them are
// wrong in print, which each says in its place.
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/model/batch_shape.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/memory.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/network/collective_cost.h"
#include "tests/approx.h"
#include "tests/costmodel/network/wire_bytes.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

constexpr double kGB = 1e9;
constexpr std::int64_t kParameters = 70'000'000'000;  // The articles' 70 B; the preset has fewer.

/// A printed figure, which may be off by half of its last digit, and what it should be.
struct Printed {
  std::string of;
  double printed;
  double half_unit;
  double computed;
  const char* wrong = nullptr;  ///< Why it does not agree.
};

void check(const std::vector<Printed>& figures) {
  for (const Printed& figure : figures) {
    CAPTURE(figure.of);
    CAPTURE(figure.computed);
    const bool agrees = std::abs(figure.printed - figure.computed) <= figure.half_unit * (1 + 1e-9);
    CHECK(agrees == (figure.wrong == nullptr));
  }
}

double ring_bytes(double bytes, int ranks) {
  return ring_bytes_per_rank(CollectiveKind::AllReduce, bytes, ranks);
}

double states(std::int64_t parameters, int zero_stage, double optimizer_bytes) {
  MemoryOptions options;
  options.optimizer_bytes_per_parameter = optimizer_bytes;
  constexpr int kRanks = 8;
  options.optimizer_shards = zero_stage >= 1 ? kRanks : 1;
  options.gradient_shards = zero_stage >= 2 ? kRanks : 1;
  options.parameter_shards = zero_stage == 3 ? kRanks : 1;
  return static_cast<double>(state_memory(parameters, Dtype::Bf16, options).total().value());
}

double compressed(CommunicationHook hook, const HookOptions& options, bool by_tensors = false) {
  std::vector<std::vector<std::int64_t>> shapes = {{kParameters}};
  if (by_tensors) {
    shapes.clear();
    for (const Parameter& parameter : parameters(model_preset("llama2-70b"))) {
      shapes.push_back(parameter.shape);
    }
  }
  return bytes_on_wire_per_rank(hook_collectives(hook, options, shapes, 4, 8, 0));
}

double buckets(std::int64_t cap_mib) {
  TransformerConfig model = model_preset("llama2-7b");
  model.parameter_dtype = Dtype::F32;
  constexpr std::int64_t kMiB = 1 << 20;
  return static_cast<double>(
      rebuilt_buckets(bucket_parameters(model), ready_order(model), kMiB, cap_mib * kMiB).size());
}

double scores(std::int64_t samples, std::int64_t length) {
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(samples), length);
  return batch_shape(lengths).sum_squares;
}

}  // namespace

TEST_CASE("all-reduces of 70 B fp32 gradients: Transformer Anatomy 20, table of times") {
  const double bytes = 4.0 * kParameters;
  const auto seconds = [bytes](int ranks, double speed) {
    return ring_bytes(bytes, ranks) / speed;
  };
  check({{"volume of 2 GPUs", 280, 0.5, ring_bytes(bytes, 2) / kGB},
         {"volume of 4", 420, 0.5, ring_bytes(bytes, 4) / kGB},
         {"volume of 8", 490, 0.5, ring_bytes(bytes, 8) / kGB},
         {"volume of 64", 548, 0.5, ring_bytes(bytes, 64) / kGB, "2 x 63/64 x 280 is 551.25"}});
  check({{"2, NVLink", 0.31, 0.005, seconds(2, 900e9)},
         {"4, NVLink", 0.47, 0.005, seconds(4, 900e9)},
         {"8, NVLink", 0.54, 0.005, seconds(8, 900e9)},
         {"64, NVLink", 0.61, 0.005, seconds(64, 900e9)},
         {"2, InfiniBand", 5.6, 0.05, seconds(2, 50e9)},
         {"4, InfiniBand", 8.4, 0.05, seconds(4, 50e9)},
         {"8, InfiniBand", 9.8, 0.05, seconds(8, 50e9)},
         {"64, InfiniBand", 11.0, 0.05, seconds(64, 50e9)},
         {"2, PCIe", 10.0, 0.05, seconds(2, 28e9)},
         {"4, PCIe", 15.0, 0.05, seconds(4, 28e9)},
         {"8, PCIe", 17.5, 0.05, seconds(8, 28e9)},
         {"64, PCIe", 19.6, 0.05, seconds(64, 28e9), "follows from the 548 GB"}});
}

TEST_CASE("memory of a 70 B model's states by ZeRO stage: Transformer Anatomy 20, system_ml 4") {
  const char* const two = "two fp32 values a parameter; with master weights there are three";
  check({{"not sharded", 840, 5, states(kParameters, 0, 8) / kGB},
         {"ZeRO-1", 350, 5, states(kParameters, 1, 8) / kGB},
         {"ZeRO-2", 210, 5, states(kParameters, 2, 8) / kGB, "the gradient shard is missing"},
         {"ZeRO-3", 105, 0.5, states(kParameters, 3, 8) / kGB},
         {"not sharded, 12 B", 840, 5, states(kParameters, 0, 12) / kGB, two},
         {"ZeRO-1, 12 B", 350, 5, states(kParameters, 1, 12) / kGB, two},
         {"ZeRO-2, 12 B", 210, 5, states(kParameters, 2, 12) / kGB, two},
         {"ZeRO-3, 12 B", 105, 0.5, states(kParameters, 3, 12) / kGB, two},
         {"7 B, about", 120, 5, states(7'000'000'000, 0, 12) / kGB, "is that of 7.5 B parameters"},
         {"70 B, TB", 1.1, 0.05, states(kParameters, 0, 12) / 1e12}});
}

TEST_CASE("volume by way of compressing: Transformer Anatomy 20, 8 GPUs") {
  HookOptions past_start;
  past_start.start_iteration = 0;
  past_start.rank = 4;
  past_start.topk_fraction = 0.01;
  const auto gb = [&](CommunicationHook hook, bool by_tensors = false) {
    return compressed(hook, past_start, by_tensors) / kGB;
  };
  check({{"none", 490, 0.5, gb(CommunicationHook::None)},
         {"fp16", 245, 0.5, gb(CommunicationHook::Fp16)},
         {"PowerSGD, rank 4",
          12,
          0.5,
          gb(CommunicationHook::PowerSgd, true),
          "its own formula, (n + m) x rank values a matrix, gives 0.37 GB"},
         {"top 1 %",
          5,
          0.5,
          gb(CommunicationHook::TopK),
          "each value needs an index, and ranks choose different ones: an all-gather"}});
  CHECK(gb(CommunicationHook::PowerSgd, true) == Approx(0.37).epsilon(0.013));
  CHECK(gb(CommunicationHook::TopK) == Approx(39.2));
}

TEST_CASE("buckets of a 7 B model: Transformer Anatomy 20") {
  // Printed is 28 GB over the cap. No tensor is split, and a bucket closes when it has reached it.
  CHECK(std::vector{buckets(1), buckets(10), buckets(25), buckets(100), buckets(500)} ==
        std::vector{226.0, 226.0, 226.0, 162.0, 44.0});
}

TEST_CASE("a 7 B model's step: system_ml, lesson 4") {
  const double bytes = 2.0 * 7e9;
  const TransformerConfig model = model_preset("llama2-7b");
  check({{"sent by each of many, about", 28, 0.5, ring_bytes(bytes, 1000) / kGB},
         {"sent by each of eight, about", 28, 0.5, ring_bytes(bytes, 8) / kGB, "7/8 of it"},
         {"of many at 150 GB/s, about", 190, 5, ring_bytes(bytes, 1000) / 150e9 * 1e3},
         {"of eight, about", 190, 5, ring_bytes(bytes, 8) / 150e9 * 1e3, "24.5 GB take 163 ms"},
         {"backward of 4 x 4096 tokens, about",
          100,
          5,
          training_flops(model, 4, 4096) / 989e12 * 1e3,
          "7.1e14 operations take an H100 0.72 s at its peak"}});
}

TEST_CASE("attention's scores: Chris McCormick, FlashAttention varlen") {
  constexpr double kMi = 1 << 20;
  check({{"a row of 2048", 4, 0.5, scores(1, 2048) / kMi},
         {"16 rows", 64, 0.5, scores(16, 2048) / kMi},
         {"a document of 512", 0.25, 0.005, scores(1, 512) / kMi},
         {"64 documents", 8, 0.5, scores(64, 512) / kMi, "64 x 256 Ki are 16 Mi"},
         {"what varlen saves", 8, 0.5, scores(16, 2048) / scores(64, 512), "2048 / 512 = 4"}});
}
